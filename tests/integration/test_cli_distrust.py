"""The command line at a controller whose certificate it does not trust: one sentence, no more."""

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everstep_proto.tls import TlsSettings
from fakes.authority import Authority


@contextmanager
def _listening(shown: TlsSettings) -> Iterator[int]:
    """Shake hands over TLS with everybody, with a certificate; yield the port."""
    assert shown.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = threading.Thread(target=_shake_hands, args=(listener, context), daemon=True)
        served.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            served.join(20)


def _shake_hands(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.settimeout(20)
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)


def test_nothing_of_grpcs_own_stands_beside_the_sentence(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("theirs", "ours")]
    for folder in folders:
        folder.mkdir()
    theirs, ours = (Authority(folder).issue("x", "operator") for folder in folders)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with _listening(theirs) as port:
        told = subprocess.run(
            [
                *(sys.executable, "-m", "everstep.entry", "nodes"),
                *("--controller", f"localhost:{port}", "--tls-ca", str(ours.ca)),
                *("--tls-certificate", str(ours.certificate), "--tls-key", str(ours.key)),
            ],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert told.returncode == 1
    (line,) = told.stderr.splitlines()
    assert line.startswith(
        f"Error: the controller at localhost:{port} and this command do not trust"
    )
