"""Processes of a generation on this node: started, grouped, reaped, and how they ended."""
