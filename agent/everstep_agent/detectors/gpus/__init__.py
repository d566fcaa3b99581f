"""What is judged of NVIDIA GPUs."""
