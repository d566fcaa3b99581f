"""Images under runc: unpacked by umoci, run as a pod's container is, without a container engine."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """What a pod gives its container, in the words of its manifest."""

    args: Sequence[str] = ()
    command: Sequence[str] = ()
    user: int | None = None
    capabilities: Sequence[str] = ()
    privileged: bool = False
    # Host's processes and network.
    host_pid: bool = False
    host_network: bool = False
    mounts: Mapping[str, Path] = field(default_factory=dict)
    devices: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bundle:
    """An unpacked image."""

    folder: Path

    def run(self, name: str, pod: Pod) -> "subprocess.CompletedProcess[str]":
        """Run a container to its end."""
        return subprocess.run(
            self._command(name, pod),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @contextmanager
    def running(self, name: str, pod: Pod, log: Path) -> Iterator[None]:
        """Run a container until the block is left; what it says is in a file."""
        with log.open("wb") as said:
            started = subprocess.Popen(
                self._command(name, pod), stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        try:
            yield
        finally:
            subprocess.run([*self._runc, "kill", name, "TERM"], capture_output=True, check=False)
            try:
                started.wait(30)
            except subprocess.TimeoutExpired:
                subprocess.run(
                    [*self._runc, "delete", "--force", name], capture_output=True, check=False
                )
                started.wait(30)

    def exec(self, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a program in a container that runs."""
        return subprocess.run(
            [*self._runc, "exec", name, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def _runc(self) -> list[str]:
        return ["runc", "--root", str(self.folder.parent / "runc")]

    def _command(self, name: str, pod: Pod) -> list[str]:
        config = self.folder / "config.json"
        own = self.folder / "config.image.json"
        if not own.exists():
            own.write_bytes(config.read_bytes())
        config.write_text(json.dumps(_configured(json.loads(own.read_text()), pod)))
        return [*self._runc, "run", "--bundle", str(self.folder), name]


def unpacked(archive: Path, version: str, folder: Path) -> Bundle:
    """Unpack an archive of an image."""
    layout = folder / "layout"
    layout.mkdir(parents=True)
    subprocess.run(["tar", "-xf", archive, "-C", layout], check=True)
    bundle = folder / "bundle"
    command = ["umoci", "unpack", "--image", f"{layout}:{version}", str(bundle)]
    subprocess.run(command, check=True, capture_output=True)
    return Bundle(bundle)


def _configured(config: Json, pod: Pod) -> Json:
    """Return the configuration of a container, as containerd makes it of a pod."""
    process = config["process"]
    process["terminal"] = False
    process["args"] = [*(pod.command or process["args"]), *pod.args]
    process["env"] = [*process["env"], *(f"{key}={value}" for key, value in pod.env.items())]
    if pod.user is not None:
        process["user"] = {"uid": pod.user, "gid": pod.user}
    process["rlimits"] = []
    process["noNewPrivileges"] = not pod.privileged
    caps = _ALL if pod.privileged else [f"CAP_{name}" for name in pod.capabilities]
    # A pod's capabilities are never ambient: only root has what is added.
    is_root = process["user"]["uid"] == 0
    process["capabilities"] = {
        "bounding": caps,
        "effective": caps if is_root else [],
        "permitted": caps if is_root else [],
        "inheritable": [],
        "ambient": [],
    }
    config["root"]["readonly"] = True
    linux = config["linux"]
    linux.pop("seccomp", None)
    shared = {"network": pod.host_network, "pid": pod.host_pid, "cgroup": True, "user": True}
    linux["namespaces"] = [one for one in linux["namespaces"] if not shared.get(one["type"])]
    allowed: list[Json] = [{"allow": pod.privileged, "access": "rwm"}]
    linux["resources"] = {"devices": allowed}
    config["mounts"] = [*_mounts(config["mounts"], pod), *_binds(pod)]
    return config


def _mounts(mounts: list[Json], pod: Pod) -> list[Json]:
    kept = [one for one in mounts if one["destination"] != "/sys/fs/cgroup"]
    if not pod.host_pid:
        return kept
    return [one for one in kept if one["destination"] != "/proc"] + [
        {"destination": "/proc", "type": "proc", "source": "proc"}
    ]


def _binds(pod: Pod) -> list[Json]:
    named = {**pod.mounts, **{device: Path(device) for device in pod.devices}}
    return [
        {
            "destination": place,
            "type": "bind",
            "source": str(source),
            "options": ["rbind", "rw"],
        }
        for place, source in named.items()
    ]


# capabilities(7): those that a privileged container has; the kernel leaves out what it has not.
_NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "NET_ADMIN", "NET_RAW", "SYS_CHROOT", "SYS_PTRACE", "SYS_ADMIN", "SYS_NICE",
    "SYS_RESOURCE", "MKNOD", "SYSLOG",
)  # fmt: skip
_ALL = [f"CAP_{name}" for name in _NAMES]
