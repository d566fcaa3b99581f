"""The vault: a job's snapshots in memory that the agent owns."""
