"""The version of this build, and of the language between a job's processes and the agent."""

VERSION = "0.1.0"

# Raised when a message between launcher or trainer and agent changes its meaning. An agent takes
# this version and the two before it (DESIGN.md, Trust).
TRAINER_PROTOCOL = 2
