"""What the node has, against what it should have."""
