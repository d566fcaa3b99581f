"""Restore: which verified copies together hold what a rank asks for, and fetching them."""
