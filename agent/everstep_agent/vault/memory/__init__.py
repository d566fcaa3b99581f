"""Snapshot memory: sealed regions, and who may have how much of what the node has."""
