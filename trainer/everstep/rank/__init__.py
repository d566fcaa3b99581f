"""A rank as its process knows it: place in the job, connection to the agent, clock and log."""
