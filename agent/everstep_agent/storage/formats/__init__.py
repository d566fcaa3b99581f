"""What is written to storage: safetensors files, and the records beside them. Pure."""
