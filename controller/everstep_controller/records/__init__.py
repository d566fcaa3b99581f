"""Records of the agents' outboxes on their way into the journal, and their acknowledgement."""
