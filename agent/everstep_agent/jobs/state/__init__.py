"""State of a job on a node: its facts, its life as a table, and how both are kept and told."""
