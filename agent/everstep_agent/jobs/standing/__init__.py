"""Standing of a job's ranks on this node: whether they stand still, and how far they are."""
