"""Watches: jobs and nodes are looked at on a tick, judged, and what changed enters the core."""
