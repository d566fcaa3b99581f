"""Memory of arrays and tensors of each library: seen as bytes, filled, and found by its kind."""
