"""Client of the controller: the Protocol of its calls, and these calls over gRPC."""

import os

# gRPC's core writes lines of its own beside our sentences, and reads this as it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
