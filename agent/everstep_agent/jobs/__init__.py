"""What the agent does for the launchers and training processes of its node."""
