"""Probes: read the state of the node, and judge nothing."""
