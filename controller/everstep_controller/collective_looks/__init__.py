"""Collective looks at the controller: when the ranks of running jobs enqueued collectives."""
