"""Metrics of the agent: what it exports to Prometheus."""
