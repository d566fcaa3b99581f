"""Judges of hangs: who holds a job back, by the reports of its ranks. Pure."""
