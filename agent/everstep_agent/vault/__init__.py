"""Snapshots of training jobs in this node's memory: kept, replicated, restored."""
