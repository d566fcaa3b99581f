"""Configuration of the controller, from its file."""
