"""Metrics of the controller, as Prometheus scrapes them."""
