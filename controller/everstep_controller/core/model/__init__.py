"""Model: the values of the core's state."""
