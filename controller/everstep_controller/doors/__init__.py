"""Doors: processes that accept the agents' streams of a large fleet, and hand their messages on."""
