"""Messages between the agent and the processes of its node: framed, with bounded memory."""
