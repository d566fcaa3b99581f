"""Nodes: their health, claims, checks and liveness."""
