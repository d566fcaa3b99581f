"""Whether this node is healthy, for whoever asks on the node: people, schedulers, launchers."""
