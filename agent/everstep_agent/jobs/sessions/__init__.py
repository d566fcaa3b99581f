"""Sessions: connections of launchers and training processes on the agent's Unix socket."""
