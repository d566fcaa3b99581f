"""Core: all decisions of the controller; pure, deterministic, in integer nanoseconds."""
