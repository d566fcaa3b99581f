"""Vault: which copies of a job's state exist, and what is done with them."""
