"""Versions: of this build, and of the messages between a job's processes and the agent."""

VERSION = "0.1.0"

# Raised when a message between launcher or trainer and agent means something else or has a field
# more, or when one is new that the agent does not ask for: an older agent would end each
# connection at it.
# An agent takes this version, and from the first release on at least the two before it.
TRAINER_PROTOCOL = 17
# Messages of this one mean the same: what is new since then, its processes do not say.
TRAINER_PROTOCOL_LEAST = 9
