"""Real control plane on loopback: etcd and kube-apiserver 1.20, built once from Debian's source."""

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from fakes.kubernetes.server import ADMIN_TOKEN, DRIVER_TOKEN, DRIVER_USER
from fakes.kubernetes.site import kubeconfig
from fakes.ports import reserved_port
from kubernetes_suite.cluster import Cluster
from kubernetes_suite.human import Human

_BUILDER = Path(__file__).with_name("build-control-plane")
_READY_S = 120


def control_plane_folder() -> Path:
    """Return where the programs are, or are built; it outlives a checkout."""
    given = os.environ.get("EVERSTEP_KUBERNETES")
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or f"{cache}/everstep/kubernetes-1.20.2").expanduser()


def built() -> Path:
    """Build the programs where they are not there yet (some minutes); return their folder."""
    folder = control_plane_folder()
    subprocess.run([_BUILDER, folder], check=True)
    return folder


@dataclass
class ControlPlane:
    """etcd and kube-apiserver, in a folder of the test."""

    programs: Path
    folder: Path
    port: int
    etcd_port: int
    peer_port: int
    etcd: subprocess.Popen[bytes] | None = None
    server: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make keys and tokens, and start etcd."""
        key = self.folder / "sa.key"
        _run("openssl", "genrsa", "-out", key, "2048")
        _run("openssl", "rsa", "-in", key, "-pubout", "-out", self.folder / "sa.pub")
        rows = f"{ADMIN_TOKEN},admin,1,system:masters\n{DRIVER_TOKEN},{DRIVER_USER},2,\n"
        (self.folder / "tokens.csv").write_text(rows)
        self._start_etcd()

    def _start_etcd(self) -> None:
        peer = self.peer_port
        self.etcd = self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self.etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self.etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )

    def start(self) -> None:
        """See Server."""
        self.server = self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=10.66.9.1",
            f"--secure-port={self.port}",
            "--insecure-port=0",
            f"--cert-dir={self.folder / 'certs'}",
            "--service-account-issuer=https://kubernetes.default",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
        )
        _until(self._is_ready)

    def stop(self) -> None:
        """See Server."""
        _end(self.server)

    def compact(self) -> None:
        """See Server: etcd forgets, and a server that is started anew remembers nothing either."""
        self.stop()
        status = self._ask_etcd("/v3/maintenance/status", {})
        revision = status["header"]["revision"]
        self._ask_etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        self.start()

    def back_up(self) -> None:
        """See Server."""
        self.stop()
        _end(self.etcd)
        copy = self.folder / "etcd.copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "etcd", copy)
        self._start_etcd()
        self.start()

    def restore(self) -> None:
        """See Server."""
        self.stop()
        _end(self.etcd)
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(self.folder / "etcd.copy", self.folder / "etcd")
        self._start_etcd()
        self.start()

    def end(self) -> None:
        """End all."""
        _end(self.server)
        _end(self.etcd)

    def cluster(self) -> Cluster:
        """Return the cluster, once its server is ready."""
        ca = self.folder / "certs" / "apiserver.crt"
        server = f"https://127.0.0.1:{self.port}"
        human = Human.at(server, ca, ADMIN_TOKEN)
        human.call("POST", "/api/v1/namespaces", {"metadata": {"name": "everstep"}})
        return Cluster(self, human, kubeconfig(self.folder, server, ca, DRIVER_TOKEN))

    def memory_mib(self) -> float:
        """Return the memory of the server."""
        assert self.server is not None
        pages = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [self.programs / program, *arguments], stdout=log, stderr=log, cwd=self.folder
            )

    def _is_ready(self) -> bool:
        assert self.server is not None
        if self.server.poll() is not None:
            tail = (self.folder / "kube-apiserver.log").read_text()[-2000:]
            raise AssertionError(f"kube-apiserver has ended: {tail}")
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        ca = self.folder / "certs" / "apiserver.crt"
        try:
            url = f"https://127.0.0.1:{self.port}/readyz"
            tls = ssl.create_default_context(cafile=str(ca))
            return httpx2.get(url, verify=tls, headers=headers).status_code == 200
        except (OSError, httpx2.HTTPError):
            return False

    def _ask_etcd(self, path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        url = f"http://127.0.0.1:{self.etcd_port}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            result: dict[str, dict[str, str]] = json.load(answer)
            return result


def _run(*command: object) -> None:
    subprocess.run([str(one) for one in command], check=True, capture_output=True)


def _end(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _READY_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("the control plane is not ready")
        time.sleep(0.1)


@contextmanager
def running_control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Yield a control plane that is ready, and end it."""
    with reserved_port() as port, reserved_port() as etcd_port, reserved_port() as peer_port:
        plane = ControlPlane(built(), folder, port, etcd_port, peer_port)
        try:
            plane.prepare()
            plane.start()
            yield plane
        finally:
            plane.end()


def may_be_built() -> str:
    """Return why the control plane cannot be built here; empty where it can."""
    if (control_plane_folder() / "kube-apiserver").exists():
        return ""
    return "" if shutil.which("apt-get") and shutil.which("openssl") else "needs apt and openssl"
