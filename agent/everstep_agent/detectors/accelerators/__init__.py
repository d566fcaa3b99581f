"""What is judged of other accelerators."""
