"""A process of another user for tests: connects to a socket of the agent again and again.

Arguments: folder of the socket, its name, user id, how often. Starts as root. Prints the first
thing that it heard, and the longest: of many some are let in.
"""

import contextlib
import os
import socket
import sys

from everstep_common.frames import connect_in_turn


def main(folder: str, name: str, uid: int, count: int) -> None:
    # The folders above may be closed to this user: the socket is opened from inside.
    os.chdir(folder)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    heard = []
    for _ in range(count):
        with socket.socket(socket.AF_UNIX) as made, contextlib.suppress(ConnectionError):
            connect_in_turn(made, name, 20.0)
            made.settimeout(20)
            made.sendall(b"\0\0\0\2{}")
            heard.append(made.recv(4096))
    print(heard[0], max(heard, key=len))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
