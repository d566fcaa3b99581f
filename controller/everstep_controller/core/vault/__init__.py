"""Vault: the copies of each job's state that nodes hold, and what is done with them."""
