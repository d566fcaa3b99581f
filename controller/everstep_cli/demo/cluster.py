"""The demo's cluster: folders, configurations and command lines of everything that runs."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child, OwnedProcesses
from everstep_cli.demo.proofs import DemoRestore
from everstep_cli.demo.reaper import Identity

JOB = "demo"
NODES = ("node-1", "node-2", "node-3", "node-4", "node-5")
SPARE = "node-5"

# Slow enough to watch, and to leave two cores time for everything else.
_STEP_SECONDS_MIN = 0.1

# Each generation writes a file of its own, so that it can be told which computed what.
_PER_GENERATION = 'exec "$@" --losses "$DEMO_LOSSES/$EVERSTEP_GENERATION.tsv"'


@dataclass(slots=True)
class DemoCluster:
    """Folders, configurations and processes of one demo. Use only from the main thread."""

    folder: Path
    owned: OwnedProcesses
    steps: int
    address: str
    environ: Mapping[str, str]
    nodes: dict[str, Child] = field(default_factory=dict)
    launchers: dict[str, Child] = field(default_factory=dict)

    @classmethod
    def plan(cls, folder: Path, owned: OwnedProcesses, steps: int) -> "DemoCluster":
        """Lay out folders for a cluster whose controller listens on a socket in its own."""
        folder = folder.resolve()
        (folder / "losses").mkdir()
        # Whatever is killed leaves nothing behind: with the folder all of it goes.
        (folder / "tmp").mkdir()
        for name in NODES:
            (folder / name).mkdir()
            (folder / name / "kernel.log").touch()
        environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
        environ["PYTHONUNBUFFERED"] = "1"
        environ["TMPDIR"] = str(folder / "tmp")
        environ["DEMO_LOSSES"] = str(folder / "losses")
        return cls(folder, owned, steps, f"unix:{folder / 'controller' / 'grpc.sock'}", environ)

    @property
    def reference_path(self) -> Path:
        """Return where the uninterrupted run writes its losses."""
        return self.folder / "reference.tsv"

    @property
    def _page_address(self) -> Path:
        return self.folder / "page-address"

    def losses_path(self, generation: int) -> Path:
        """Return where a generation writes its losses."""
        return self.folder / "losses" / f"{generation}.tsv"

    def all_losses(self) -> list[Path]:
        """Return the loss files of all generations."""
        return sorted((self.folder / "losses").glob("*.tsv"))

    def kernel_log(self, node: str) -> Path:
        """Return the file that stands for a node's kernel log."""
        return self.folder / node / "kernel.log"

    def start_reference(self) -> Child:
        """Start the uninterrupted run: the same script, alone, without Everstep."""
        command = ["nice", *self._training(paced=False), "--losses", str(self.reference_path)]
        return self.owned.start("reference", command, self.environ)

    def start_controller(self) -> Child:
        """Start the controller; it may isolate, for this is its own cluster."""
        config = self._write("controller.toml", self._controller_config())
        command = [*_daemon("controller"), "--config", str(config)]
        return self.owned.start("controller", command, self.environ)

    def start_node(self, name: str) -> Child:
        """Start a node: a holder, which keeps descriptors as systemd would, and its agent."""
        config = self._write(f"{name}.toml", self._agent_config(name))
        agent = [*_daemon("agent"), "--config", str(config)]
        command = [*_daemon("agent"), "hold", "--die-with-parent", "--", *agent]
        self.nodes[name] = self.owned.start(f"{name}-agent", command, self.environ)
        return self.nodes[name]

    def start_page(self) -> Child:
        """Start the page, which writes the address that lets somebody in into a file."""
        command = [sys.executable, "-m", "everstep.entry", "page", "--controller", self.address]
        command += ["--listen", "127.0.0.1:0", "--address-file", str(self._page_address)]
        return self.owned.start("page", command, self.environ)

    def page_address(self) -> str:
        """Return the newest address that lets somebody into the page; "" before there is one."""
        try:
            return self._page_address.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""

    def launch(self, name: str) -> Child:
        """Start a node's launcher of the training job."""
        options = ["--job", JOB, "--nnodes", "3:4", "--nproc-per-node", "1"]
        options += ["--token-file", str(self.folder / "job.token")]
        script = ["sh", "-c", _PER_GENERATION, "sh", *self._training(paced=True)]
        command = [sys.executable, "-m", "everstep.entry", "run", *options, "--", *script]
        environ = {**self.environ, "EVERSTEP_SOCKET": str(self._socket(name))}
        self.launchers[name] = self.owned.start(f"{name}-launcher", command, environ)
        return self.launchers[name]

    def ranks(self, name: str) -> list[Identity]:
        """Return the training processes of a node."""
        running = self.owned.below(self.launchers[name])
        return [p for p in running if "RANK" in reaper.environment(p.pid)]

    def restores(self) -> tuple[DemoRestore, ...]:
        """Return every restore that the agents have logged."""
        found: list[DemoRestore] = []
        for name, child in self.nodes.items():
            text = child.log.read_text(encoding="utf-8", errors="replace")
            found += restores_in(name, text)
        return tuple(found)

    def _training(self, *, paced: bool) -> Sequence[str]:
        pace = ["--step-seconds-min", str(_STEP_SECONDS_MIN)] if paced else []
        return [sys.executable, str(training_script()), "--steps", str(self.steps), *pace]

    def _socket(self, name: str) -> Path:
        return self.folder / name / "run" / "agent.sock"

    def _controller_config(self) -> str:
        folder = self.folder / "controller"
        folder.mkdir(mode=0o700)
        return f"""\
listen = "{self.address}"
metrics = "127.0.0.1:0"
log_style = "text"
journal = "{folder / "journal.sqlite"}"
[core]
mode = "enforce"
"""

    def _agent_config(self, name: str) -> str:
        folder = self.folder / name
        return f"""\
node = "{name}"
controller = "{self.address}"
host = "127.0.0.1"
domain = "rack-{name[-1]}"
data_folder = "{folder}"
metrics_address = "127.0.0.1:0"
liveness_address = "127.0.0.1:0"
kernel_log = "{self.kernel_log(name)}"
log_style = "text"
[jobs]
runtime_folder = "{folder / "run"}"
bulk_port = 0
"""

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


def training_script() -> Path:
    """Return the shipped training script: in the installed package, or in a source checkout."""
    here = Path(__file__)
    installed = here.parent / "job" / "train_numpy.py"
    return installed if installed.exists() else here.parents[3] / "examples" / "train_numpy.py"


def _daemon(name: str) -> list[str]:
    """Return the command of a daemon: the installed one, or the module in a source checkout."""
    installed = Path(sys.executable).with_name(f"everstep-{name}")
    return (
        [str(installed)] if installed.exists() else [sys.executable, "-m", f"everstep_{name}.main"]
    )


_RESTORED = re.compile(
    r"job \S+: generation (?P<generation>\d+): rank (?P<rank>\d+) restored step (?P<step>\d+) "
    r"from (?P<sources>.+)"
)
_PREFETCHED = re.compile(
    r"job \S+: prefetched step (?P<step>\d+) of rank (?P<rank>\d+) "
    r"from peer memory of (?P<node>\S+)"
)
_PEER = "peer memory of "


def restores_in(node: str, log: str) -> Iterator[DemoRestore]:
    """Yield what the log of a node's agent tells, oldest first."""
    fetched = {(m["rank"], m["step"]): m["node"] for m in _PREFETCHED.finditer(log)}
    for match in _RESTORED.finditer(log):
        # What was fetched ahead is in the node's own memory by the time a rank asks.
        own = fetched.get((match["rank"], match["step"]), node)
        yield DemoRestore(
            node=node,
            generation=int(match["generation"]),
            rank=int(match["rank"]),
            step=int(match["step"]),
            sources=tuple(sorted({_holder(one, own) for one in match["sources"].split(", ")})),
        )


def _holder(source: str, own: str) -> str:
    """Return the node that a source names; ``own`` for the memory of this one."""
    told = source.strip()
    return own if told == "own memory" else told.removeprefix(_PEER)
