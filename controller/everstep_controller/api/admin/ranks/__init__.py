"""Ranks of a job at the admin API: what they write and do, for operators and the job's user."""
