"""How isolation reaches the schedulers of a cluster."""
