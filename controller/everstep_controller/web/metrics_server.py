"""Metrics server: /metrics over HTTP, in a thread of its own, encrypted as the controller is."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from everstep_common.addresses import is_loopback, split_address
from everstep_proto.tls import TlsSettings


class MetricsServer:
    """Server of /metrics, in a thread of its own."""

    def __init__(self, address: str, tls: TlsSettings, collector: Collector) -> None:
        """Begin to listen. Raises OSError."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Lazy(collector))
        host, port = split_address(address)
        encrypted = tls.enabled and not is_loopback(address)
        self._server: WSGIServer
        self._thread: threading.Thread
        self._server, self._thread = start_http_server(
            int(port),
            host,
            registry,
            certfile=str(tls.certificate) if encrypted else None,
            keyfile=str(tls.key) if encrypted else None,
            client_cafile=str(tls.ca) if encrypted else None,
            client_auth_required=encrypted,
        )
        self.port = int(self._server.server_port)

    def stop(self) -> None:
        """Stop serving, and free the port."""
        # It looks twice a second whether it shall end; a socket that is shut wakes it at once.
        ending = threading.Thread(target=self._server.shutdown)
        ending.start()
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)
        ending.join()
        self._server.server_close()
        self._thread.join()


class _Lazy(Collector):
    """Collector that is not asked at registration, before the loop can answer."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._collector.collect()
