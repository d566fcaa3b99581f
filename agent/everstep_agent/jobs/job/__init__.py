"""Job on a node: the parts of the agent that act for one job, and the processes it runs."""
