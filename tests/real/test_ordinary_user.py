"""`everstep run` by a user without an account or a home, on nodes whose agent is root's."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child
from integration.real_fleet import JOB
from real.fault_world import alone
from real.ordinary_user import ALICE, BOB, import_path, missing, python_for_all
from real.user_world import SCRIPT, UserWorld, user_world

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

_STEPS = 80
_TRAINING = (SCRIPT, "--steps", _STEPS)
_FOREVER = (SCRIPT, "--steps", 1_000_000, "--step-seconds", "0.05")
_EVERY_STEP = ("--nproc-per-node", "2", "--snapshot-every", "1")
_ATTACH = "import everstep; everstep.init()"


@pytest.mark.timeout(300)
def test_a_job_of_a_user_without_an_account_loses_ranks_and_a_node_and_no_step(
    tmp_path: Path,
) -> None:
    wanted = alone(tmp_path, _TRAINING)
    with user_world(["n1", "n2"], _TRAINING, "--nnodes", "2", *_EVERY_STEP) as world:
        world.enter = lambda _: ("prlimit", "--core=unlimited")
        token, logs = world.home / "token", world.home / "logs"
        world.options = [*world.options, "--token-file", str(token), "--logs", str(logs)]
        world.gate(5)
        world.launch()
        world.training()
        world.until("standbys", lambda: "2 warm standbys are ready" in world.said("n1"))
        os.kill(world.ranks("n1")[0], signal.SIGABRT)
        _runs(world, 2)
        assert "SIGABRT" in world.said("n1")
        world.kill_node("n2")
        world.revive("n2")
        _runs(world, 3)
        world.gate(_STEPS)
        world.ends_well(wanted)
        assert "core dumped" in world.fleet.everstep("events", "--subject", JOB).stdout
        assert token.stat().st_mode & 0o777 == 0o600
        made = [token, *logs.rglob("*"), *world.folder.glob("rank-*")]
        assert {path.stat().st_uid for path in made} == {ALICE.uid}
        assert (logs / "gen-1" / "rank-0.out").is_file()


def _runs(world: UserWorld, generation: int) -> None:
    """Let a generation that is there, or comes, make steps, and return when they are safe."""
    first, last = world.fleet.first_steps, max(world.fleet.losses()) + 10
    world.gate(last)
    world.until(f"generation {generation}", lambda: max(first(), default=0) >= generation)
    world.reached(last)


@pytest.fixture(scope="module")
def node() -> Iterator[UserWorld]:
    """One node, on which a job of Alice trains without an end."""
    with user_world(["n1"], _FOREVER, "--nnodes", "1", *_EVERY_STEP) as world:
        world.options = [*world.options, "--token-file", str(world.home / "token")]
        world.launch()
        world.training()
        world.until("its ranks", lambda: len(world.ranks("n1")) == 2)
        yield world


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--", "sh", "-c", "exit 0"], 0, "job other succeeded"),
        (["--max-restarts", "0", "--", "sh", "-c", "exit 3"], 1, "job other failed"),
        (["--", "/nowhere/train"], 2, "/nowhere/train"),
        (["--socket", "/nowhere/agent.sock", "--", "true"], 1, "no agent answers at /nowhere"),
        (["--token-file", "/proc/token", "--", "true"], 2, "the job token /proc/token"),
    ],
)
def test_the_exit_code_tells_what_became_of_a_job(
    node: UserWorld, arguments: list[str], code: int, sentence: str
) -> None:
    token = {"EVERSTEP_JOB_TOKEN": "" if "--token-file" in arguments else "a secret"}
    run = node.run("n1", BOB, "run", "--job", "other", *arguments, **token)
    node.until("its end", lambda: run.exit_code is not None)
    said = run.log.read_text(errors="replace")
    assert run.exit_code == code, said
    assert sentence in said


def test_another_user_takes_no_part_in_a_job_also_with_its_token(node: UserWorld) -> None:
    token = (node.home / "token").read_text().strip()
    run = node.run("n1", BOB, "run", "--job", JOB, "--", "true", EVERSTEP_JOB_TOKEN=token)
    node.until("its end", lambda: run.exit_code is not None)
    assert run.exit_code == 1
    assert "belongs to another user; choose another name with --job" in run.log.read_text()
    _goes_on(node)


def test_another_users_process_cannot_attach_also_with_all_that_a_rank_knows(
    node: UserWorld,
) -> None:
    (rank, *_) = node.ranks("n1")
    known = {k: v for k, v in reaper.environment(rank).items() if k.startswith("EVERSTEP_")}
    done = _as_bob(node, [python_for_all(), "-c", _ATTACH], known)
    assert done.returncode != 0
    assert "user or token differ; start it with everstep run" in done.stderr
    _goes_on(node)


def test_another_user_reads_nothing_of_the_job_or_of_the_agent(node: UserWorld) -> None:
    (rank, *_) = node.ranks("n1")
    data = node.fleet.folder / "n1"
    private = [node.home / "token", data / "run" / "jobs.sqlite", data / "run" / "agent.lock"]
    private += [Path(f"/proc/{rank}/{name}") for name in ("environ", "mem", "maps", "fd/0")]
    allowed = [str(path) for path in private if not _as_bob(node, ["cat", str(path)], {}).stderr]
    assert not allowed
    # Whoever may not look at the process does not get the memory that it shares with the agent.
    assert _as_bob(node, ["ls", f"/proc/{rank}/fd"], {}).returncode != 0
    # He may connect: that is how he joins with a job of his own.
    assert (data / "run" / "agent.sock").stat().st_mode & 0o777 == 0o666


def test_a_job_that_its_user_ends_says_so_and_ends_as_planned(node: UserWorld) -> None:
    """The last of this node: it ends the job that the others look at."""
    launcher = node.fleet.launchers["n1"]
    _until_shown(node, launcher, "warm standbys are ready")
    launcher.process.send_signal(signal.SIGTERM)
    node.until("its end", lambda: launcher.exit_code is not None)
    assert launcher.exit_code == 128 + signal.SIGTERM
    node.until("its end is known", lambda: node.state() == "ended")
    ledger = node.fleet.ledger(JOB)
    assert ledger.incidents[-1].cause == "user"
    assert not [kind.name for kind in ledger.categories if kind.name.startswith("inc.")]


def _until_shown(node: UserWorld, launcher: Child, words: str) -> None:
    node.until(words, lambda: words in launcher.log.read_text(errors="replace"))


def _as_bob(
    node: UserWorld, command: list[str], environ: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*BOB.become, *command],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": import_path(), **environ},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _goes_on(node: UserWorld) -> None:
    """Return when the job has gone on, in the generation in which it was."""
    node.reached(max(node.fleet.losses()) + 2)
    assert sorted(node.fleet.first_steps()) == [1]
