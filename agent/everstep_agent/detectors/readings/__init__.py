"""Readings that several detectors judge: counters that grow, and the node's topology."""
