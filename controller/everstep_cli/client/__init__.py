"""Client of the controller: the Protocol of its calls, and these calls over gRPC."""
