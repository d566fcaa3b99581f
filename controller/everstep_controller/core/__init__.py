"""Everything the controller decides: pure, deterministic, in integer nanoseconds."""
