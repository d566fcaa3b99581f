"""Access to the API server: its address, its certificates and our credentials, in files.

Token and certificates of a pod are replaced while it runs, and so are those of a kubeconfig. The
files are looked at before each request, and a token that is refused is read again.
"""

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import httpx2
from lightkube import ConfigError, SingleConfig
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.models import Cluster, Context, User

from everstep_controller.drivers.kubernetes.kubeconfig import (
    AccessError,
    Selected,
    check_token,
    read_kubeconfig,
)
from everstep_controller.drivers.kubernetes.program import ProgramAuth

IN_CLUSTER = "in-cluster"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ADDRESS = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is and who we are there: in-cluster, or by a kubeconfig."""

    place: str
    context: str = ""
    account: Path = _ACCOUNT

    @property
    def credentials(self) -> str:
        """Return what names us, for people."""
        if self.place == IN_CLUSTER:
            return f"the service account in {self.account}"
        return f"the kubeconfig {self.place}" + (
            f", context {self.context}" if self.context else ""
        )

    @property
    def rbac_command(self) -> str:
        """Return the command that gives us what we need there."""
        user = "" if self.place == IN_CLUSTER else " --user NAME"
        named = "" if self.place == IN_CLUSTER else " (NAME: as kubectl auth whoami says)"
        return f"everstep-controller kubernetes rbac{user} | kubectl apply -f -{named}"

    def files(self) -> tuple[Path, ...]:
        """Return the files that are read for a connection. Raises AccessError."""
        return self._selected().files

    def connect(self, timeout_s: float) -> httpx2.AsyncClient:
        """Return a client for these files, as they are now. Raises AccessError."""
        selected = self._selected()
        try:
            client = AsyncClient(
                selected.config, ConnectionParams(httpx2.Timeout(timeout_s), trust_env=False)
            )
        except (ConfigError, OSError, ssl.SSLError, ValueError) as error:
            raise AccessError(
                f"{self.credentials}: its certificates or key cannot be used: {error}"
            ) from error
        if selected.program is not None:
            client.auth = ProgramAuth(selected.program)
        # The server would pack a list of 200 MB into 20, for a second of both its cores and ours.
        client.headers["Accept-Encoding"] = "identity"
        client.headers["User-Agent"] = "everstep"
        return client

    def _selected(self) -> Selected:
        try:
            if self.place == IN_CLUSTER:
                return _of_a_pod(self.account)
            return read_kubeconfig(Path(self.place), self.context)
        except AccessError as error:
            raise AccessError(f"{self.credentials}: {error}") from error


def _of_a_pod(account: Path) -> Selected:
    """Return the access of a pod by its service account. Raises AccessError."""
    host, port = (os.environ.get(name, "") for name in _ADDRESS)
    token, authority = account / "token", account / "ca.crt"
    try:
        check_token(token.read_text(), str(token))
        authority.read_bytes()
        if not host or not port:
            raise AccessError(f"{' and '.join(_ADDRESS)} are not set")
    except (OSError, AccessError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise AccessError(
            f"{told}; is the controller in a pod, whose service account is mounted? Beside the "
            "cluster, drivers.kubernetes.access is the path of a kubeconfig"
        ) from error
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = Cluster(server=address, certificate_auth=str(authority))
    config = SingleConfig(
        "pod", Context(cluster="pod"), cluster, User(token_file=str(token)), account / "config"
    )
    return Selected(config, (token, authority))


def stamp_of(files: Iterable[Path]) -> tuple[tuple[int, int, int], ...]:
    """Return what changes when one of these files is replaced or written."""
    found = []
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)
