"""Saving: one step from the training state into memory that the agent owns, and back."""
