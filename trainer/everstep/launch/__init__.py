"""``everstep run``: the training processes of one node, started and stopped as the agent says."""
