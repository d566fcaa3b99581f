"""Suite of the Kubernetes driver: the same scenarios against the fake API server and a real one."""
