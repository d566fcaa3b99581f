"""Kubernetes driver: what isolates a node is a condition and a taint, with the least rights."""
