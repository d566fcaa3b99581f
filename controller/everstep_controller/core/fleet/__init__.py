"""Fleet: what concerns all nodes together."""
