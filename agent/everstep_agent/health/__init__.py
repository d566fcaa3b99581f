"""Node health: one answer for those who ask on the node: people, schedulers, launchers."""
