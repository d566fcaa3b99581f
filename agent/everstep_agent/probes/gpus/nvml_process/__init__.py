"""NVML process code: runs in the child that calls the NVIDIA driver, and imports only itself."""
