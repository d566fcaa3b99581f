"""Isolation drivers: how the schedulers of a cluster learn which nodes to leave alone."""
