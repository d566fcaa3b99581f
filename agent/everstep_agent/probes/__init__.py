"""Probes read the node; they do not judge."""
