"""Hangs outside the core: looks at ranks that stand still, their judge, evidence and notices."""
