"""NCCL RAS as it answers on its line protocol, by version, and in the ways in which it fails.

The exchange was checked with NVIDIA's own client, ``ncclras``, built from source.
"""

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator

MISSING = {
    "rank": 3,
    "host": "10.0.0.2",
    "pid": 1003,
    "cuda_dev": 3,
    "nvml_dev": 3,
    "status": {"unresponsive": True, "considered_dead": False},
}


def rank(number: int) -> dict[str, object]:
    """Return a rank that answers."""
    return {
        "rank": number,
        "host": "10.0.0.1",
        "pid": 1000 + number,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
        "collective_counts": {"AllReduce": 7, "Broadcast": 1},
    }


def status(version: str, *, missing: bool = True) -> str:
    """Return a report as a version of NCCL prints it; 2.28 leaves out a comma."""
    communicator = {
        "hash": "0xab",
        "secondary_hash": "0x1:0x2",
        "size": 4,
        "ranks_count": 3,
        "missing_ranks_count": int(missing),
        "ranks": [rank(number) for number in range(3)],
        "missing_ranks": [MISSING] if missing else [],
    }
    report = {
        "nccl_version": version,
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 2.05, "timeouts_count": 1},
    }
    text = json.dumps(report, indent=2)
    if version.startswith("2.28"):
        at = text.index('"missing_ranks": [')
        head, rest = text[:at], text[at:]
        text = head + rest.replace('"nvml_dev": 3,', '"nvml_dev": 3')
    return text


class _Handler(socketserver.StreamRequestHandler):
    @property
    def _ras(self) -> "Ras":
        assert isinstance(self.server, Ras)
        return self.server

    def handle(self) -> None:
        self._ras.asked += 1
        hung = {"hangs": True, "first hangs": self._ras.asked == 1}
        if hung.get(self._ras.how):
            self._ras.ended.wait()
            return
        with contextlib.suppress(OSError):
            for line in self.rfile:
                if not self._answer(line.decode().strip().lower()):
                    return

    def _answer(self, command: str) -> bool:
        server = self._ras
        if command.startswith("client protocol "):
            greeting = b"SSH-2.0\n" if server.how == "stranger" else b"SERVER PROTOCOL 2\n"
            self.wfile.write(greeting)
        elif command.startswith("set format ") and server.version < "2.28.7":
            self.wfile.write(b"ERROR: Unknown command\n")
        elif command.startswith(("timeout ", "set format ")):
            self.wfile.write(b"OK\n")
        elif command == "verbose status":
            server.reports += 1
            self._report()
            return False
        else:
            self.wfile.write(b"ERROR: Unknown command\n")
        return True

    def _report(self) -> None:
        if self._ras.how == "endless":
            while not self._ras.ended.is_set():
                self.wfile.write(b'{"a":[' * 10_000)
        elif self._ras.how == "slow":
            for byte in self._ras.answer:
                self.wfile.write(bytes([byte]))
                if self._ras.ended.wait(0.05):
                    return
        else:
            self.wfile.write(self._ras.answer)


class Ras(socketserver.ThreadingTCPServer):
    """One process that listens for questions to RAS."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, version: str = "2.30.7", how: str = "", answer: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.version, self.how = version, how
        self.answer = (answer or status(version)).encode()
        self.asked = self.reports = 0
        self.ended = threading.Event()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def ras(version: str = "2.30.7", how: str = "", answer: str = "") -> Iterator[Ras]:
    """Serve until the end of the block."""
    with Ras(version, how, answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
