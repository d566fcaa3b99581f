"""Inventory detectors: what a node has, compared with what its operator expects it to have."""
