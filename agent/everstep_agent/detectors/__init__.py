"""Detectors: turn what was read of one node into judgements of its health, without any I/O."""
