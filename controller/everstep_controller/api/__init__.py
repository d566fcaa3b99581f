"""The controller's doors: the agents' streams and the command line's calls."""
