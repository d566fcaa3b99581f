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
import msgspec
import yaml
from lightkube import ConfigError, KubeConfig, SingleConfig
from lightkube.config.client_adapter import AsyncClient, ConnectionParams

IN_CLUSTER = "in-cluster"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class AccessError(Exception):
    """There is no way to the API server; one sentence says why and what to look at."""


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

    def files(self) -> list[Path]:
        """Return the files that are read for a connection. Raises AccessError."""
        if self.place == IN_CLUSTER:
            return [self.account / "ca.crt", self.account / "token"]
        config = self._config()
        named = [config.cluster.certificate_auth]
        if config.user is not None:
            named += [config.user.client_cert, config.user.client_key, config.user.token_file]
        # A certificate or key may stand in the kubeconfig itself.
        return [Path(self.place), *(Path(config.abs_file(name)) for name in named if name)]

    def connect(self, timeout_s: float) -> httpx2.AsyncClient:
        """Return a client for these files, as they are now. Raises AccessError."""
        try:
            client = AsyncClient(
                self._config(), ConnectionParams(httpx2.Timeout(timeout_s), trust_env=False)
            )
        except (ConfigError, OSError, ssl.SSLError, ValueError, AssertionError) as error:
            raise AccessError(f"{self.credentials} cannot be used: {error}") from error
        # The server would pack a list of 200 MB into 20, for a second of both its cores and ours.
        client.headers["Accept-Encoding"] = "identity"
        client.headers["User-Agent"] = "everstep"
        return client

    def _config(self) -> SingleConfig:
        try:
            if self.place == IN_CLUSTER:
                config = KubeConfig.from_service_account(self.account).get()
            else:
                config = KubeConfig.from_file(self.place).get(self.context or None)
        except (ConfigError, OSError, yaml.YAMLError, msgspec.MsgspecError) as error:
            raise AccessError(f"{self.credentials} cannot be read: {error}") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise AccessError(
                f"{self.credentials} is incomplete, or not used here: {error}"
            ) from error
        if config is None or config.user is None:
            raise AccessError(f"{self.credentials} names no user")
        if not config.user.token_file:
            return config
        # The client reads this path as it is; kubectl, beside the kubeconfig.
        token_file = str(config.abs_file(config.user.token_file))
        return config._replace(user=msgspec.structs.replace(config.user, token_file=token_file))


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
