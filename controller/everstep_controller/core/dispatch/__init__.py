"""Dispatch of events: to the handlers that take them, then to what decides from the state."""
