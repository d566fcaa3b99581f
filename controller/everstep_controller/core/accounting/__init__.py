"""Accounting: where the time of a job went."""
