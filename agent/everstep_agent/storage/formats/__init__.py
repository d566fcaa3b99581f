"""Storage formats: safetensors files, and the records beside them. Pure."""
