"""A real launcher with real ranks beside a `TrainerAgent`, for tests."""

import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_common.launcher_messages import End, Join, Start, Started, Stop
from everstep_common.reports import EndAsked, GenerationStopped
from fakes.ports import reserved_port
from fakes.waits import PATIENCE_S
from integration.trainer_agent import TrainerAgent, Vault

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "train_numpy.py"
# Steps that the example trains in a test.
STEPS = 60


def environment(*modules: Path, **more: str) -> dict[str, str]:
    """Return an environment in which the checkout's packages are found, and these modules."""
    parts = (REPOSITORY / "trainer", REPOSITORY / "common", *modules)
    path = os.pathsep.join(map(str, parts))
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    return kept | {"PYTHONPATH": path} | more


@dataclass(slots=True)
class Job:
    """A launcher that has joined; the test plays the controller."""

    agent: TrainerAgent
    launcher: subprocess.Popen[str]
    join: Join

    def start(
        self, generation: int, ranks: int, restore_step: int | None = None, *, renew: bool = False
    ) -> dict[int, int]:
        """Start a generation of this many ranks on this node; return their process ids."""
        self.agent.vault.generation = generation
        self.agent.vault.restore_step = restore_step
        start = Start(
            generation=generation,
            node_rank=0,
            node_count=1,
            first_rank=0,
            processes=ranks,
            world_size=ranks,
            master_address="127.0.0.1",
            master_port=self.join.free_port,
            restore_step=restore_step,
            reason="a test",
            renew=renew,
        )
        self.agent.tell_launcher(start)
        started = self.agent.expect(Started)
        assert isinstance(started, Started)
        return {process.rank: process.pid for process in started.processes}

    def stop(self, generation: int, grace_s: float = 0.0) -> None:
        """Stop a generation."""
        self.agent.tell_launcher(Stop(generation, grace_s, "a test"))
        while not isinstance(
            message := self.agent.from_launcher.get(timeout=PATIENCE_S), GenerationStopped
        ):
            continue
        assert message.generation == generation

    def user_ends(self, generation: int = 1) -> EndAsked:
        """Stop the generation at its user's word, and end the job; return that word."""
        asked = self.agent.expect(EndAsked)
        assert isinstance(asked, EndAsked)
        self.agent.tell_launcher(Stop(generation, 0.0, "ended by its user"))
        stopped = self.agent.expect(GenerationStopped)
        assert isinstance(stopped, GenerationStopped)
        self.agent.tell_launcher(End(succeeded=False, reason="ended by its user on node-1"))
        return asked

    def end(self, *, succeeded: bool = True) -> tuple[int, str, str]:
        """End the job; return the launcher's exit code, its output and its errors."""
        self.agent.tell_launcher(End(succeeded, "a test"))
        out, errors = self.launcher.communicate(timeout=PATIENCE_S)
        return self.launcher.returncode, out, errors


@contextmanager
def joined_job(
    folder: Path,
    *command: str,
    options: Sequence[str] = (),
    screen: int = subprocess.PIPE,
    modules: Sequence[Path] = (),
) -> Iterator[Job]:
    """Yield a job whose launcher runs ``command``; nothing of it is left afterwards.

    ``modules`` are folders of what it can import; ``screen`` takes its output; a terminal is its
    own, as after a login.
    """
    path = folder / "agent.sock"
    vault = Vault()
    agent = TrainerAgent(path, vault)
    arguments = ["run", "--job", "test", "--socket", str(path), *options, "--", *command]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "everstep.entry", *arguments],
        env=environment(*modules, EVERSTEP_JOB_TOKEN=vault.token),
        stdout=screen,
        stderr=screen,
        text=True,
        start_new_session=screen >= 0,
        preexec_fn=_own_terminal if screen >= 0 and os.isatty(screen) else None,
    )
    job = None
    try:
        join = agent.expect(Join)
        assert isinstance(join, Join)
        job = Job(agent, launcher, join)
        yield job
    finally:
        launcher.kill()
        launcher.communicate()
        (job.agent if job else agent).close()
        vault.close()


def _own_terminal() -> None:
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)


def read_losses(path: Path) -> dict[int, str]:
    """Return the loss of each step; a step that was repeated must have had the same."""
    losses: dict[int, str] = {}
    for line in path.read_text(encoding="ascii").splitlines():
        step, loss = line.split("\t")
        assert losses.setdefault(int(step), loss) == loss, f"step {step} differs when repeated"
    return losses


def train(folder: Path, world_size: int) -> dict[int, str]:
    """Return the losses of an uninterrupted run without an agent."""
    losses = folder / f"losses-{world_size}"
    command = [sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--losses", str(losses)]
    place = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1"}
    with reserved_port() as port:
        place["MASTER_PORT"] = str(port)
        ranks = [
            subprocess.Popen(command, env=environment(RANK=str(rank), **place))
            for rank in range(world_size)
        ]
        assert [rank.wait(timeout=120) for rank in ranks] == [0] * world_size
    return read_losses(losses)
