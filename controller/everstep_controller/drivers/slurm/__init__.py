"""Slurm driver: nodes are drained with a reason of ours, and the drains of others are read."""
