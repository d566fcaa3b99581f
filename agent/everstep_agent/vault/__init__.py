"""Vault: snapshots of training jobs in this node's memory, kept, replicated and restored."""
