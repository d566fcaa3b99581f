"""Runs in a network namespace of its own that has hundreds of interfaces: whose a connection is.

Prints what the kernel told of the other end of a connection that is bound to the last of them.
"""

import socket
import subprocess

from everstep_agent.ipc.socket_owner import SocketOwners

_PAIRS = 130
_ADDRESS = "10.9.0.1"


def main() -> None:
    """Make the interfaces and a connection between two of the namespace's own sockets."""
    lines = ["link set lo up"]
    lines += [f"link add one{n} type veth peer name two{n}" for n in range(_PAIRS)]
    last = f"one{_PAIRS - 1}"
    lines += [
        f"addr add {_ADDRESS}/24 dev {last}",
        f"link set {last} up",
        f"link set two{_PAIRS - 1} up",
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    owners = SocketOwners()
    with socket.create_server((_ADDRESS, 0)) as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, last.encode())
        client.settimeout(20)
        client.connect(listener.getsockname())
        served, address = listener.accept()
        with served:
            print(owners.find(address, served.getsockname()))
    owners.close()


if __name__ == "__main__":
    main()
