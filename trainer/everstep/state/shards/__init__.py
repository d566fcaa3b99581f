"""Shards of a state: regions of arrays, who has the same bytes, and what a rank holds of them."""
