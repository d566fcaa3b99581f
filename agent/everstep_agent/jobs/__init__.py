"""Jobs of a node: what the agent does for their launchers and training processes."""
