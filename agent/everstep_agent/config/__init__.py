"""Configuration of the agent: its settings, their units and defaults."""
