"""Controllers of the cluster: which of several this agent is connected to."""
