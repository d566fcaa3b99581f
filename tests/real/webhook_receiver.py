"""Receiver of webhooks on a booted machine: verifies each request, and writes down what came.

webhook_receiver.py PORT KEY_FILE FOLDER
"""

import base64
import hashlib
import hmac
import http.server
import json
import sys
import time
from pathlib import Path

_OLD_S = 300


class _Hook(http.server.BaseHTTPRequestHandler):
    """One request; while there is a file "away" in the folder, nothing is accepted."""

    key: bytes
    folder: Path

    def do_POST(self) -> None:
        """Verify a request as docs/webhooks.md says, and write it down."""
        body = self.rfile.read(int(self.headers["content-length"]))
        away = (self.folder / "away").exists()
        signed = self._is_signed(body)
        if not away:
            line = {"path": self.path, "signed": signed, "event": json.loads(body)}
            with (self.folder / "came").open("a") as came:
                came.write(json.dumps(line) + "\n")
        self.send_response(503 if away else 204 if signed else 401)
        self.end_headers()

    def _is_signed(self, body: bytes) -> bool:
        name, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        code = hmac.new(self.key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
        expected = f"v1,{base64.b64encode(code).decode()}"
        fresh = abs(time.time() - int(at)) < _OLD_S
        return fresh and hmac.compare_digest(expected, self.headers["webhook-signature"])


def main() -> None:
    """Receive until killed."""
    _Hook.key = Path(sys.argv[2]).read_bytes().strip()
    _Hook.folder = Path(sys.argv[3])
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), _Hook).serve_forever()


if __name__ == "__main__":
    main()
