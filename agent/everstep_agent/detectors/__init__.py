"""Detectors judge what one node can judge alone; pure, from readings to judgements."""
