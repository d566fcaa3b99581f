"""Pair test: fixed work on a node and its links, timed and compared with that of a partner."""
