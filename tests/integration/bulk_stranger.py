"""A process of another user for tests: connects to the bulk port of an agent again and again.

Arguments: host, port, user id, how often (0: until killed), the interface to be bound to or "", the
address to come from or "". Starts as root. Prints how many connections were ended by the agent.
"""

import contextlib
import os
import socket
import sys

_PATIENCE_S = 20.0


def main(target: tuple[str, int], uid: int, count: int, interface: str, source: str) -> None:
    """Connect, and wait for the end of each connection."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    print("ready", flush=True)
    ended = tried = 0
    while not count or tried < count:
        tried += 1
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        with socket.socket(family) as made, contextlib.suppress(ConnectionError):
            made.settimeout(_PATIENCE_S)
            if interface:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            if source:
                made.bind((source, 0))
            made.connect(target)
            ended += made.recv(1) == b""
    print(ended, flush=True)


if __name__ == "__main__":
    main((sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:7])
