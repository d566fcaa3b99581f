"""Failures of ranks: how a process died, by its exit code and its last output."""
