"""Fleet service: the agents' streams, and their messages as values of the core and back."""
