"""Planned work: restarts, growth and maintenance."""
