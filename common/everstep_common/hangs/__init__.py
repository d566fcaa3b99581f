"""Hangs: what each rank of a job that stands still reports, and who holds the job back."""
