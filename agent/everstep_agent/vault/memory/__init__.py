"""Snapshot memory: sealed regions, and how much of the node's memory each user may have."""
