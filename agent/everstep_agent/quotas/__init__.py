"""Quotas: what one user of the node may take of its agent, and who was refused by them."""
