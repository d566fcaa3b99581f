"""A fleet of agents that root runs, and the job of somebody who is not root."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child
from integration.real_fleet import JOB, running_fleet
from real.fault_world import FaultWorld
from real.ordinary_user import ALICE, User, import_path, python_for_all

SCRIPT = Path(__file__).with_name("fault_job.py")


@dataclass(slots=True)
class UserWorld(FaultWorld):
    """A world of faults whose launchers are an ordinary user's; made by ``user_world``."""

    user: User = ALICE
    # The command that runs another one where the user's launchers of a node run.
    enter: Callable[[str], Sequence[str]] = field(default=lambda _: ())
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Return the user's own folder."""
        return self.fleet.folder / "home"

    def socket(self, name: str) -> Path:
        """Return the socket of a node's agent."""
        return self.fleet.folder / name / "run" / "agent.sock"

    def launch(self, *names: str) -> None:
        """See FaultWorld."""
        for name in names or self.fleet.nodes:
            line = ["--job", JOB, *self.options, "--", python_for_all(), *self.script]
            self.fleet.launchers[name] = self.run(name, self.user, "run", *line)

    def run(self, node: str, user: User, *arguments: str, **variables: str) -> Child:
        """Start the command line on a node as a user; as the job's own, in their folder."""
        folder = str(self.home) if user == self.user else "/"
        program = ("env", "-C", folder, python_for_all(), "-m", "everstep.entry", *arguments)
        line = [*self.enter(node), *user.become, *program]
        environ = {
            **{"PATH": "/usr/bin:/bin", "PYTHONPATH": import_path(), "PYTHONUNBUFFERED": "1"},
            **{"LOSSES": str(self.folder), "EVERSTEP_SOCKET": str(self.socket(node))},
            **{**self.variables, **variables},
        }
        # Each has a file of its own for what it says.
        name = f"{node}-launcher-{len(self.fleet.owned.children)}"
        return self.fleet.owned.start(name, line, environ)

    def ranks(self, name: str) -> list[int]:
        """Return the newest generation's ranks on a node, by their numbers on this machine.

        They write down the numbers that they have themselves.
        """
        files = [path.name.split("-")[1:] for path in self.folder.glob("rank-*-*")]
        newest = max((int(generation) for generation, _ in files), default=0)
        told = [path.read_text() for path in self.folder.glob(f"rank-{newest}-*")]
        numbers = {int(text.split()[0]) for text in told if text}
        below = self.fleet.owned.below(self.fleet.launchers[name])
        return [one.pid for one in below if own_number(one.pid) in numbers]

    def said(self, name: str) -> str:
        """Return what the launchers of a node have shown."""
        return self.fleet.launchers[name].log.read_text(errors="replace")


def own_number(pid: int) -> int:
    """Return the number that a process has in its own PID namespace; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    numbers = next(line.split() for line in lines if line.startswith("NSpid:"))
    return int(numbers[-1]) if reaper.identify(pid) else 0


@contextmanager
def user_world(
    nodes: Sequence[str], script: Sequence[object], *options: str, agent_lines: Sequence[str] = ()
) -> Iterator[UserWorld]:
    """Yield a fleet whose job's user can reach its sockets, and write where its ranks do."""
    core = ("loss_hold_s = 3.0",)
    with running_fleet(*nodes, core_lines=core, agent_lines=tuple(agent_lines)) as fleet:
        world = UserWorld(fleet, [str(word) for word in script], options)
        fleet.folder.chmod(0o711)
        world.user.own(world.home, world.folder)
        yield world
