"""Fleet of the field: its machines, daemons with certificates, and the command line beside them."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fakes.waits import wait_until
from field.machines.image import REPOSITORY, unpack_image
from field.machines.machine import Fixed, Machine, machine
from field.machines.network import Network
from field.machines.site import CONTROL_HOST, USERS, Site
from real.hanging_storage import Storage, hanging_storage

CONTROLLER_PORT = 7433
KERNEL_LOG = "/var/log/kernel.field"
_STORAGE_BYTES = 384 << 20
_OF_NSPAWN = Path("/run/systemd/nspawn")
_START_S = 120.0
_CLI_S = 15.0
_AGENT = """\
node = "{name}"
host = "{address}"
domain = "{rack}"
liveness_address = "{address}:7437"
metrics_address = "{address}:7435"
# All machines share one kernel, and so its log: each gets its own lines from a file.
kernel_log = "{kernel_log}"
"""
# What is only advised as shipped, whatever the mode: ranks leave a node whose agent stays away.
_ENFORCED = 'enforce = ["StepsUnsaved"]\n'
_CONTROLLER_ADDRESS = f'"{CONTROL_HOST}:{CONTROLLER_PORT}"'


@dataclass(slots=True)
class Fleet:
    """Everything that a fault can be done to."""

    site: Site
    work: Path
    machines: dict[str, Machine]
    network: Network
    # Where steps are stored, and what no fault fills or takes away: what jobs leave for the field.
    filer: Path
    results: Path
    # Where jobs read samples from, on all machines.
    dataset: Storage
    # The machine that the controller is on; a fault may move it.
    control: str
    # Its `core.mode`.
    mode: str

    def machine(self, name: str) -> Machine:
        """Return a machine."""
        return self.machines[name]

    @property
    def controller(self) -> Machine:
        """Return the controller's machine."""
        return self.machines[self.control]

    def everstep(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line at the workstation, as an operator."""
        tls = self.work / "tls"
        environ = {
            "PATH": os.environ["PATH"],
            "EVERSTEP_CONTROLLER": f"{self.controller.place.address}:{CONTROLLER_PORT}",
            "EVERSTEP_TLS_CA": f"{tls}/ca.pem",
            "EVERSTEP_TLS_CERTIFICATE": f"{tls}/root.pem",
            "EVERSTEP_TLS_KEY": f"{tls}/root.key",
            "EVERSTEP_TLS_SERVER_NAME": CONTROL_HOST,
        }
        program = REPOSITORY / ".venv/bin/everstep"
        return subprocess.run(
            [program, *words], env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    def ask(self, *words: str) -> object:
        """Return what the command line answers as JSON. Raises OSError where it has no answer."""
        done = self.everstep(*words, "--json", "--timeout", str(_CLI_S))
        if done.returncode:
            raise OSError(f"everstep {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def name_controller(self) -> None:
        """Let every machine find the others by name, and the controller by its own."""
        # Ranks of gloo listen at the address of their machine's name.
        named = [f"{place.address} {place.name}" for place in self.site.places]
        lines = ["127.0.0.1 localhost", *named, f"{self.controller.place.address} {CONTROL_HOST}"]
        for one in self.machines.values():
            one.write("/etc/hosts", "\n".join(lines) + "\n")

    def await_ready(self) -> None:
        """Return when the controller has heard every agent."""

        def connected() -> bool:
            answer = self.ask("nodes")
            assert isinstance(answer, dict)
            told = [node["node"] for node in answer["nodes"] if node.get("connected")]
            return set(told) >= set(self.site.names)

        wait_until(connected, _START_S, "without some of the agents")


@contextlib.contextmanager
def booted_fleet(
    site: Site, work: Path, built: Path, memory_bytes: int, mode: str
) -> Iterator[Fleet]:
    """Yield a fleet of an image that runs; everything of it ends on the way out."""
    with contextlib.ExitStack() as stack:
        # Beside machines: it leaves locks and folders where it is killed.
        stack.enter_context(_tmpfs(_OF_NSPAWN, None))
        memory = stack.enter_context(_tmpfs(work / "memory", None))
        filer = stack.enter_context(_tmpfs(work / "filer", _STORAGE_BYTES))
        results = stack.enter_context(_tmpfs(work / "results", None))
        (work / "dataset").mkdir()
        dataset = stack.enter_context(hanging_storage(work / "dataset", direct=True))
        layer = memory / "image"
        unpack_image(built, layer)
        network = Network(site)
        stack.callback(network.close)
        machines = {}
        for place in site.places:
            fixed = Fixed(
                *(network.namespace(place.name), filer, results, work / "dataset"),
                *(work.parent.name, memory_bytes),
            )
            machines[place.name] = stack.enter_context(machine(place, [layer], memory, fixed))
        fleet = Fleet(site, work, machines, network, filer, results, dataset, site.control, mode)
        for share in (filer, results):
            _share(share)
        _certify(fleet, layer)
        for one in machines.values():
            _configure(one)
        _enable_controller(fleet)
        fleet.name_controller()
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(Machine.boot, machines.values()))
        fleet.await_ready()
        yield fleet


@contextlib.contextmanager
def _tmpfs(folder: Path, size_bytes: int | None) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    options = [] if size_bytes is None else ["-o", f"size={size_bytes}"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _share(filer: Path) -> None:
    """Give each user a folder of the shared storage."""
    filer.chmod(0o755)
    for number, user in enumerate(USERS):
        (filer / user).mkdir(mode=0o700)
        os.chown(filer / user, 54330 + number, 54330 + number)


def _certify(fleet: Fleet, layer: Path) -> None:
    script = layer / "opt/everstep/share/everstep/systemd/certificates.sh"
    agents = [word for name in fleet.site.names for word in ("agent", name)]
    words = ("controller", CONTROL_HOST, *agents, "operator", "root")
    subprocess.run(
        ["sh", script, fleet.work / "tls", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for one in fleet.machines.values():
        give_certificate(fleet, one, "agent", one.name)
    give_certificate(fleet, fleet.controller, "controller", "controller")


def give_certificate(fleet: Fleet, one: Machine, daemon: str, name: str) -> None:
    """Put a certificate where a daemon of a machine reads it: group everstep, keys with 640."""
    folder = one.root / "etc/everstep/tls"
    folder.mkdir(parents=True, exist_ok=True)
    group = _group_id(one.root, "everstep")
    for source, target in (("ca.pem", "ca.pem"), (f"{name}.pem", f"{daemon}.pem")):
        shutil.copy(fleet.work / "tls" / source, folder / target)
        (folder / target).chmod(0o644)
    key = folder / f"{daemon}.key"
    shutil.copy(fleet.work / "tls" / f"{name}.key", key)
    os.chown(key, 0, group)
    key.chmod(0o640)


def _configure(one: Machine) -> None:
    """Edit the shipped settings as the page says, and add the drop-in for storage."""
    path = one.root / "etc/everstep/agent.toml"
    own = _AGENT.format(kernel_log=KERNEL_LOG, **_words(one))
    text = path.read_text().replace(
        '"unix:/run/everstep-controller/controller.sock"', _CONTROLLER_ADDRESS
    )
    text = text.replace("[jobs]\n", f'[jobs]\nbulk_host = "{one.place.address}"\n')
    path.write_text(own + _with_tls(text))
    shipped = one.root / "opt/everstep/share/everstep/systemd/everstep-agent.service.d/storage.conf"
    drop_in = shipped.read_text().replace("/shared /scratch", "/shared").replace("#Read", "Read")
    one.write("/etc/systemd/system/everstep-agent.service.d/storage.conf", drop_in)
    one.write(KERNEL_LOG, "")
    enable(one, "everstep-agent")
    enable(one, "shared.mount")


def _words(one: Machine) -> dict[str, str]:
    return {"name": one.name, "address": one.place.address, "rack": one.place.rack}


def _enable_controller(fleet: Fleet) -> None:
    """Edit the shipped settings of the controller: an address for all machines, mTLS, its mode."""
    one = fleet.controller
    path = one.root / "etc/everstep/controller.toml"
    text = path.read_text().replace(
        'listen = "unix:/run/everstep-controller/controller.sock"',
        f'listen = "{one.place.address}:{CONTROLLER_PORT}"',
    )
    mode = f'mode = "{fleet.mode}"\n{_ENFORCED * (fleet.mode == "enforce")}'
    path.write_text(_with_tls(text).replace('mode = "advise"\n', mode))
    enable(one, "everstep-controller")


def _with_tls(text: str) -> str:
    """Uncomment the section that is shipped as an example."""
    head, _, tail = text.partition("#[tls]\n")
    return f"{head}[tls]\n{tail.replace('#', '')}"


def enable(one: Machine, unit: str) -> None:
    """Have a machine start a unit at every boot."""
    name = unit if "." in unit else f"{unit}.service"
    wants = one.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / name).unlink(missing_ok=True)
    (wants / name).symlink_to(f"/etc/systemd/system/{name}")


def _group_id(root: Path, name: str) -> int:
    lines = (root / "etc/group").read_text().splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{name}:"))
