"""Boards of Grafana, as data: `python monitoring` writes their files."""
