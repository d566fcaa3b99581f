"""Commands: one function each, which parses, calls one method and prints."""
