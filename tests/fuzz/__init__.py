"""Fuzz of every wire format: structured cases, what takes them, and what may come of it."""
