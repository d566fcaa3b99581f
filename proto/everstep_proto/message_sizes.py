"""Message sizes: the longest message that each end of an agent's stream takes.

gRPC ends the stream at a longer one, which would come again on the next stream, before all else: so
whoever makes one asks first. What the largest job needs is in decision 041.
"""

TO_CONTROLLER_BYTES_MAX = 16 * 1024 * 1024
TO_AGENT_BYTES_MAX = 64 * 1024 * 1024
