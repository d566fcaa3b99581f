"""Copy engine: one step into memory that the agent owns, and back, at the speed of memcpy."""
