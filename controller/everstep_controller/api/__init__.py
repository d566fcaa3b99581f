"""API: the controller's gRPC services, for the agents' streams and for the command line."""
