"""Accounting: the time of each job by category."""
