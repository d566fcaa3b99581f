"""Replication: copies sent to other agents, taken from them and served to them."""
