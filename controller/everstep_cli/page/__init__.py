"""Page of a fleet in a browser: a process of its own that asks the controller as a viewer does."""
