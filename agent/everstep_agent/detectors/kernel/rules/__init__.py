"""Rules over kernel lines: which line of which component is a fault."""
