"""Job state on a node: its facts, its lifecycle table, its storage and its messages."""
