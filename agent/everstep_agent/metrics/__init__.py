"""What this agent tells Prometheus."""
