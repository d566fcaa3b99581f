"""Watch of a round: what the command line shows, read again and again by a thread."""

import contextlib
import json
import threading
import time
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from field.machines.fleet import Fleet
from field.observation.records import EventSeen, FindingSeen, JobSeen, NodeSeen, Redo

_POLL_S = 8.0
# Asking takes processor time from the fleet: of what lasts, only every third time.
_SELDOM = 3
_EVENTS = "1000"
# An event that is read later than that after it happened was told by a clock that somebody stepped.
_OLD_S = 300.0


@dataclass
class Watch:
    """Polls nodes, jobs, findings and events; a controller that is away is a gap, not a fault."""

    fleet: Fleet
    now: Callable[[], float]
    # The wall clock's time when ``now`` was 0, in microseconds.
    begun_us: int
    nodes: list[NodeSeen] = field(default_factory=list)
    jobs: list[JobSeen] = field(default_factory=list)
    findings: list[FindingSeen] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    _events: dict[tuple[int, int], EventSeen] = field(default_factory=dict)
    _looks: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    @property
    def events(self) -> tuple[EventSeen, ...]:
        """Return the events, each once."""
        return tuple(self._events.values())

    def look(self) -> None:
        """Read everything once."""
        self._looks += 1
        often = (self._read_nodes, self._read_jobs)
        seldom = (self._read_findings, self._read_events)
        for read in (*often, *(seldom if self._looks % _SELDOM == 1 else ())):
            try:
                read(self.now())
            except (OSError, ValueError, TimeoutError) as error:
                self.gaps.append(f"{self.now():.1f} s: {str(error).splitlines()[-1:]}")
                return

    def look_at_all(self) -> None:
        """Read everything once, for the last time."""
        self._looks = 0
        self.look()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            with contextlib.suppress(Exception):
                self.look()

    def _read_nodes(self, at_s: float) -> None:
        for one in _rows(self.fleet.ask("nodes"), "nodes"):
            claims = tuple(f"{c['owner']}: {c['reason']}" for c in one.get("claims", []))
            seen = NodeSeen(
                at_s, one["node"], one["state"], bool(one.get("connected")), claims,
                one.get("reason", ""),
            )  # fmt: skip
            self.nodes.append(seen)

    def _read_jobs(self, at_s: float) -> None:
        for one in _rows(self.fleet.ask("jobs"), "jobs"):
            hang = ""
            if one["state"] == "stalled":
                told = self.fleet.ask("job", one["job"])
                assert isinstance(told, dict)
                hang = (told.get("hang") or {}).get("sentence", "")
            step = one["step"]
            self.jobs.append(
                JobSeen(
                    at_s, one["job"], one["state"], int(one.get("generation", 0)),
                    -1 if step is None else int(step), one.get("reason", ""), hang,
                )
            )  # fmt: skip

    def _read_findings(self, at_s: float) -> None:
        for one in _rows(self.fleet.ask("findings"), "findings"):
            told = FindingSeen(at_s, one["node"], one["condition"], one.get("message", ""))
            self.findings.append(told)

    def _read_events(self, at_s: float) -> None:
        done = self.fleet.everstep("events", "--json", "--limit", _EVENTS)
        if done.returncode:
            raise OSError(done.stderr.strip() or "no events")
        for line in done.stdout.splitlines():
            one = _object(line)
            key = (int(one.get("id", 0)), int(one.get("at_ns", 0)))
            self._events.setdefault(key, event_seen(one, at_s, self.begun_us))


def event_seen(told: Mapping[str, typing.Any], at_s: float, begun_us: int) -> EventSeen:
    """Return an event as it is kept, with the time at which it happened where that can be true."""
    happened_s = int(told.get("at_ns", 0)) / 1e9 - begun_us / 1e6
    is_true = at_s - _OLD_S < happened_s <= at_s + 1.0
    return EventSeen(
        at_s, told["reason"], told.get("subject", ""), told.get("message", ""),
        round(happened_s, 3) if is_true else None,
    )  # fmt: skip


class LossWatch:
    """Reads what jobs wrote of their losses, and notes the steps that were made again."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._read: dict[Path, tuple[int, int]] = {}
        # When each step was written last.
        self._made_s: dict[tuple[Path, int], float] = {}
        self.redone: list[Redo] = []

    def look(self, jobs: Iterable[tuple[str, Path]]) -> None:
        """Read what came since the last look."""
        for name, path in jobs:
            with contextlib.suppress(OSError):
                self._look_at(name, path)

    def _look_at(self, name: str, path: Path) -> None:
        offset, reached = self._read.get(path, (0, -1))
        with path.open("rb") as file:
            file.seek(offset)
            whole, _, _ = file.read().rpartition(b"\n")
        for line in whole.split(b"\n") if whole else ():
            step = int(line.split(b"\t")[0] or -1)
            at_s = self._now()
            if 0 <= step <= reached:
                since_s = self._made_s.get((path, step))
                self.redone.append(Redo(at_s, name, step, reached, since_s))
            self._made_s[path, step] = at_s
            reached = step
        self._read[path] = (offset + len(whole) + bool(whole), reached)


def watch_losses(
    losses: LossWatch, jobs: Callable[[], list[tuple[str, Path]]], over: threading.Event
) -> threading.Thread:
    """Start a thread that looks several times a second."""

    def run() -> None:
        while not over.is_set():
            losses.look(jobs())
            time.sleep(0.3)

    thread = threading.Thread(target=run, name="losses", daemon=True)
    thread.start()
    return thread


def _rows(answer: object, name: str) -> list[dict[str, typing.Any]]:
    assert isinstance(answer, dict)
    return list(answer.get(name, []))


def _object(line: str) -> dict[str, typing.Any]:
    told = json.loads(line)
    assert isinstance(told, dict)
    return told
