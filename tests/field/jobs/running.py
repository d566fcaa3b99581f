"""Running jobs: units of users on several machines, from the shipped example, until they end."""

import contextlib
import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from field.jobs.reference import Reference, read_losses, words
from field.jobs.shapes import Promise, Shape
from field.machines.fleet import Fleet, enable
from field.machines.image import REPOSITORY
from field.machines.machine import Machine
from field.observation.records import JobResult, LedgerSeen, Restore

_EXAMPLE = REPOSITORY / "examples/systemd/everstep-job.service"
_PYTHON = "/opt/training/bin/python"
_EVERSTEP = "/opt/training/bin/everstep"
_USERS = {"alice": 54330, "bob": 54331}
_POLL_S = 1.0
# What a job's time here may be longer than its own: launchers that start on a busy machine, a poll.
_SLACK_S = 25.0
_LOOK_S = 15.0
# A job whose newest loss is older than that makes no steps.
_TRAINS_S = 5.0
_TOLD_S = 10.0
# A controller that is away, or on a machine that boots, is waited for.
_LEDGER_S = 240.0
# By the launcher, where storage is not mounted at that moment: a site begins it again. And where
# its machine shuts down: the job goes on, and the launcher comes back with the machine.
_REFUSED, _LEFT = 2, 143
# Its agent did not come in time, or another launcher still lived: its unit begins it again.
_BEGINS_AGAIN = 75
# Of a machine that is frozen, or ends at this moment.
_NO_ANSWER = (AssertionError, OSError, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True)
class Spec:
    """A job that is to run: its shape, size and user, and the machines on which it is launched."""

    name: str
    shape: Shape
    user: str
    # The first ones train, further ones wait as spares.
    machines: tuple[str, ...]
    steps: int
    step_s: float
    seed: int


@dataclass
class Job:
    """A job whose launchers are services of its user."""

    spec: Spec
    fleet: Fleet
    now: Callable[[], float]
    begun_s: float = 0.0
    stopping: bool = field(default=False)

    @property
    def unit(self) -> str:
        """Return the name of its service, the same on all machines."""
        return f"job-{self.spec.name}.service"

    @cached_property
    def out(self) -> Path:
        """Return its folder, as this process sees it."""
        return self.fleet.results / self.spec.user / self.spec.name

    def launch(self) -> None:
        """Install the service on its machines, and start it."""
        self.begun_s = self.now()
        self.out.mkdir()
        uid = _USERS[self.spec.user]
        os.chown(self.out, uid, uid)
        for name in self.spec.machines:
            one = self.fleet.machine(name)
            one.write(f"/etc/systemd/system/{self.unit}", self._unit_text())
            enable(one, self.unit)
            self._start(one)

    def await_end(self, patience_s: float) -> bool:
        """Return whether it ended within so many seconds; ends it where it did not."""
        deadline, looked_s = self.now() + patience_s, self.now()
        while self.now() < deadline and not self.stopping:
            if self.has_ended():
                return True
            time.sleep(_POLL_S)
            if self.now() - looked_s > _LOOK_S:
                self._start_what_never_ran()
                looked_s = self.now()
        return False

    def _start_what_never_ran(self) -> None:
        """Do what a site's scheduler does with a machine that could not be told to begin."""
        for name in self.spec.machines:
            one = self.fleet.machine(name)
            if one.is_up and name not in self.codes():
                with contextlib.suppress(*_NO_ANSWER):
                    down = one.show(self.unit, "ActiveState") in ("inactive", "failed")
                    # One that has ended meanwhile has written its code by then.
                    if down and name not in self.codes():
                        self._start(one)

    def _start(self, one: Machine) -> None:
        with contextlib.suppress(*_NO_ANSWER):
            one.run("systemctl", "daemon-reload", timeout_s=_TOLD_S)
            one.run("systemctl", "start", "--no-block", self.unit, timeout_s=_TOLD_S)

    def has_ended(self) -> bool:
        """Return whether as many launchers as it has nodes have ended well, or one as failed."""
        codes = self.codes()
        well = sum(code == 0 for code in codes.values())
        return well >= self.spec.shape.nodes or any(code > 0 for code in codes.values())

    def codes(self) -> dict[str, int]:
        """Return the exit codes of the launchers that have ended."""
        told = {}
        for path in self.out.glob("code-*"):
            with contextlib.suppress(ValueError, OSError):
                code = int(path.read_text())
                if code not in (_REFUSED, _LEFT, _BEGINS_AGAIN):
                    told[path.name.removeprefix("code-")] = code
        return told

    def trains(self) -> bool:
        """Return whether it has made a step within the last seconds."""
        try:
            return time.time() - (self.out / "losses").stat().st_mtime < _TRAINS_S
        except OSError:
            return False

    def remove(self) -> None:
        """Stop what is left of it on every machine, and forget its service."""
        for name in self.spec.machines:
            one = self.fleet.machine(name)
            wants = one.root / "etc/systemd/system/multi-user.target.wants" / self.unit
            wants.unlink(missing_ok=True)
            if one.is_up:
                with contextlib.suppress(*_NO_ANSWER):
                    one.run("systemctl", "stop", "--no-block", self.unit)

    def ranks(self, machine: Machine) -> list[int]:
        """Return the processes of its ranks on a machine, by the numbers they have outside."""
        found = self.generations(machine)
        newest = found[max(found)] if found else set()
        # What a rank started itself, such as a loader's worker, is none.
        return sorted(pid for pid in newest if _parent(pid) not in newest)

    def generations(self, machine: Machine) -> dict[int, set[int]]:
        """Return the processes on a machine by generation, those that ranks started among them."""
        found: dict[int, set[int]] = {}
        for group in machine.groups(f"{self.unit}/everstep-*-gen-*"):
            number = int(group.name.rpartition("-")[2])
            with contextlib.suppress(OSError):
                words_ = (group / "cgroup.procs").read_text().split()
                found.setdefault(number, set()).update(map(int, words_))
        return found

    def result(self, reference: Reference, finished: bool, ended_s: float) -> JobResult:
        """Return how it ended at that time, beside its reference."""
        seen, wanted = read_losses(self.out / "losses"), reference.losses
        differing = [step for step in sorted(wanted) if seen.get(step) != wanted[step]]
        spec = self.spec
        return JobResult(
            job=spec.name,
            shape=spec.shape.name,
            nodes=spec.machines,
            begun_s=self.begun_s,
            ended_s=ended_s,
            finished=finished,
            codes={name: self.codes().get(name, -1) for name in spec.machines},
            steps=len(seen),
            losses_equal=bool(wanted) and not differing,
            promised_equal=spec.shape.promise is Promise.EQUAL,
            own_checkpoints=spec.shape.own_checkpoints,
            first_difference=_difference(differing, seen, reference),
            ledger=self._ledger(),
            told=self._last_words(),
            checkpoint_steps=spec.shape.checkpoint_steps,
            step_s=spec.step_s,
            slack_s=_SLACK_S,
        )

    def restores(self, reference: Reference) -> list[Restore]:
        """Return what each rank was given, beside what a run without faults had."""
        path = self.out / "restores"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [_restore(self.spec.name, line, reference) for line in lines]

    def _ledger(self) -> LedgerSeen | None:
        """Return it when the controller, which may be away now, has heard that the job is over."""
        deadline = self.now() + _LEDGER_S
        while self.now() < deadline and not self.stopping:
            with contextlib.suppress(OSError, ValueError):
                if (known := self._known_to_be_over()) is not None:
                    told = self.fleet.ask("ettr", known)
                    assert isinstance(told, dict)
                    categories = {one["name"]: int(one["time_ns"]) for one in told["categories"]}
                    return LedgerSeen(int(told["wall_ns"]), categories)
            time.sleep(_POLL_S)
        return None

    def _known_to_be_over(self) -> str | None:
        """Return its id when the controller knows that it is over; None before that.

        The newest job of its name may be another one: a machine that was away as it ended begins
        its service again.
        """
        done = self.fleet.everstep("events", "--subject", self.spec.name, "--json")
        told = (
            [json.loads(line) for line in done.stdout.splitlines()] if not done.returncode else []
        )
        begun = [one["message"] for one in told if one["reason"] == "JobForming"]
        # "train-7012 was started by user 54330"
        known = begun[0].partition(" ")[0] if begun else self.spec.name
        job = self.fleet.ask("job", known)
        assert isinstance(job, dict)
        return known if job["summary"]["state"] == "ended" else None

    def _last_words(self) -> str:
        for name in self.spec.machines:
            code = self.codes().get(name, 0)
            if code > 0:
                with contextlib.suppress(*_NO_ANSWER):
                    return self.fleet.machine(name).run(
                        *("journalctl", "--no-pager", "-o", "cat", "-n", "8", "-u", self.unit)
                    )
        return ""

    def _unit_text(self) -> str:
        spec = self.spec
        options = [one.format(user=spec.user, out=self._inside) for one in spec.shape.options]
        line = [
            *(_EVERSTEP, "run", "--job", spec.name, "--nnodes", str(spec.shape.nodes)),
            *("--nproc-per-node", str(spec.shape.ranks_per_node)),
            *("--token-file", f"{self._inside}/token", *options, "--", _PYTHON),
        ]
        script, *arguments = words(spec.shape, Path(self._inside), spec.seed, spec.steps)
        line += [f"/opt/scripts/{script}", *arguments, "--step-seconds-min", f"{spec.step_s}"]
        text, ended = _EXAMPLE.read_text(), []
        for one in text.replace("\\\n", " ").splitlines():
            key = one.partition("=")[0]
            ended.append(self._replaced(line).get(key, one))
        return "\n".join(ended) + "\n"

    @property
    def _inside(self) -> str:
        return f"/results/{self.spec.user}/{self.spec.name}"

    def _replaced(self, line: Sequence[str]) -> dict[str, str]:
        """Return the lines of the example that are this job's own."""
        code = f"{self._inside}/code-%H"
        return {
            "Description": f"Description=Training job {self.spec.name}: the ranks of this node",
            "User": f"User={self.spec.user}",
            "WorkingDirectory": f"WorkingDirectory=/home/{self.spec.user}",
            "ExecStart": f"Environment=OMP_NUM_THREADS=1\nExecStart={' '.join(line)}\n"
            f"ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >{code}'",
        }


def _restore(job: str, line: str, reference: Reference) -> Restore:
    generation, rank, step, first, told = line.split(" ")
    mine = tuple(told.split(","))
    wanted = reference.digests.get(int(step), ())[int(first) : int(first) + len(mine)]
    return Restore(job, int(generation), int(rank), int(step), mine == wanted)


def _difference(differing: list[int], seen: dict[int, str], reference: Reference) -> str:
    if reference.code:
        return f"its run without faults ended with code {reference.code}"
    if not differing:
        return ""
    step = differing[0]
    return f"step {step}: {seen.get(step, 'nothing')}, without faults {reference.losses[step]}"


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def choose_machines(names: Sequence[str], width: int, chance: random.Random) -> tuple[str, ...]:
    """Return machines for a job, and one spare where there are enough."""
    wanted = min(width + 1, len(names))
    return tuple(chance.sample(list(names), wanted))
