"""The fleet as one: what is told of all nodes together."""
