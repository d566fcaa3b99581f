"""Simulation: a whole cluster in virtual time around the real core."""
