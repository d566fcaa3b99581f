"""What this node consists of, as facts."""
