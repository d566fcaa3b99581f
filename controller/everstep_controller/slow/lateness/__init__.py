"""Lateness: who of a running job comes last to the collectives that all others wait in."""
