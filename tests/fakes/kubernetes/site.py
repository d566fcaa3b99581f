"""Cluster with the fake API server: its certificates, and a kubeconfig with the driver's token."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml

from fakes.kubernetes.server import ADMIN_TOKEN, DRIVER_TOKEN, FakeApiServer
from kubernetes_suite.cluster import Cluster
from kubernetes_suite.human import Human


@dataclass
class FakeSite:
    """The fake server with TLS, as the suite wants a server."""

    fake: FakeApiServer
    tls: ssl.SSLContext

    def start(self) -> None:
        """See Server."""
        self.fake.start(self.tls)

    def stop(self) -> None:
        """See Server."""
        self.fake.stop()

    def compact(self) -> None:
        """See Server."""
        self.fake.objects.compact()

    def back_up(self) -> None:
        """See Server."""
        self.fake.objects.back_up()

    def restore(self) -> None:
        """See Server."""
        self.stop()
        self.fake.objects.restore()
        self.start()


def fake_cluster(folder: Path) -> tuple[Cluster, FakeApiServer]:
    """Return a cluster that runs; its server is to be stopped."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA).configure_cert(tls)
    ca = folder / "ca.crt"
    authority.cert_pem.write_to_path(str(ca))
    site = FakeSite(FakeApiServer(), tls)
    site.start()
    server = f"https://127.0.0.1:{site.fake.port}"
    config = kubeconfig(folder, server, ca, DRIVER_TOKEN)
    return Cluster(site, Human.at(server, ca, ADMIN_TOKEN), config), site.fake


def kubeconfig(folder: Path, server: str, ca: Path, token: str) -> Path:
    """Write a kubeconfig whose token is in a file; return its path."""
    (folder / "token").write_text(token)
    user = {"tokenFile": "token"}
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "everstep"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority": str(ca)}}
        ],
        "users": [{"name": "everstep", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(body))
    return path
