"""A process in the place of a rank whose worker server is not what it should be: ``FOLDER HOW``."""

import json
import os
import socket
import sys
import time
from pathlib import Path

_HANG_S = 600
_OTHER_S_GROUP = {"0": {"name": "0", "desc": "default_pg", "ranks": "[4, 5]"}}
_OTHER_S = {"version": "2.10", "pg_config": _OTHER_S_GROUP, "pg_status": {}, "entries": []}
_CONTENT = {
    "another rank": json.dumps(_OTHER_S).encode(),
    "deep": b'{"entries":' + b"[" * 100_000,
}
# What the recorders of a job of NCCL answer: that of all other backends knows nothing.
_NCCL_S = {"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "is_p2p": False}
_NCCL_S |= {"collective_seq_id": 1, "p2p_seq_id": 0, "profiling_name": "nccl:all_reduce"}
_GROUP_OF_TWO = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
_RECORDERS = {
    "fr_trace_json": {"version": "2.10", "pg_config": {}, "pg_status": {}},
    "dump_nccl_trace_json": {"version": "2.10", "pg_config": _GROUP_OF_TWO, "entries": [_NCCL_S]},
}
_OK = b"HTTP/1.1 200 OK\r\n"
# What is sent first, what again and again, and the pause in between.
_RAW = {
    "endless body": (_OK + b"\r\n", b"[" * 65536, 0.0),
    "endless head": (_OK, b"X: y\r\n" * 1000, 0.0),
    "drips": (_OK + b"Content-Length: 100000\r\n\r\n", b"x", 0.05),
    "breaks off": (_OK + b"Content-Length: 100\r\n\r\nx", b"", 0.0),
    "not HTTP": (b"\x00\xff" * 40 + b"\r\n\r\n", b"", 0.0),
}


def main(folder: Path, how: str) -> None:
    """Listen as the worker server of this process, and answer as asked for."""
    path = folder / f"{os.getpid()}.sock"
    if how == "a link":
        elsewhere = folder / "elsewhere"
        _listen(elsewhere)
        path.symlink_to(elsewhere)
    elif how == "a file":
        path.write_text("HTTP/1.1 200 OK\r\n\r\n")
    elif how == "a pipe":
        os.mkfifo(path)
    marker = folder / f"{os.getpid()}.json"
    # It says that a signal may be sent of which it would die.
    marker.write_text(json.dumps({"stacks": True, "why": ""}))
    listener = None if path.exists() else _listen(path)
    print("ready", flush=True)
    if listener is None or how == "never accepts":
        time.sleep(_HANG_S)
    assert listener is not None
    kept = []
    while True:
        client, _ = listener.accept()
        kept.append(client)
        words = client.recv(4096).split()
        try:
            answer(client, words[1].decode().rpartition("/")[2] if words else "", how)
        except OSError:  # whoever asked has had enough
            continue


def answer(client: socket.socket, handler: str, how: str) -> None:
    """Answer one question."""
    if how == "never answers" or (handler == "dump_traceback" and how == "no GIL"):
        return
    if handler == "ping":
        send(client, b"pong")
        return
    if how in ("before 2.10", "gloo before 2.10") and handler == "fr_trace_json":
        client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        client.close()
        return
    if how == "gloo before 2.10":
        send(client, json.dumps(_RECORDERS["fr_trace_json"]).encode())
        return
    if how in ("of NCCL", "before 2.10") and handler in _RECORDERS:
        send(client, json.dumps(_RECORDERS[handler]).encode())
        return
    first, more, pause_s = _RAW.get(how, (b"", b"", 0.0))
    if not first:
        send(client, _CONTENT.get(how, b'{"entries": "none"}'))
        return
    client.sendall(first)
    while more:
        client.sendall(more)
        time.sleep(pause_s)
    client.close()


def send(client: socket.socket, content: bytes) -> None:
    """Send a whole answer."""
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
    client.close()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)
    return listener


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
