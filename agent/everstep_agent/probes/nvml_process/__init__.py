"""What runs in the process that talks to the NVIDIA driver; it imports nothing of ours but this."""
