"""Monitoring: reads all sources of the node in their rhythms, and keeps the findings."""
