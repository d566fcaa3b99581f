"""Processes of the demo: each dies with it, and is recorded so that the reaper can kill it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_cli.demo import die_with_parent, reaper
from everstep_cli.demo.reaper import MARK, Identity

_PYTHON = [sys.executable, "-I", "-S"]
_REAPER_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the demo started itself."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, or None while it runs."""
        return self.process.poll()

    def last_lines(self, count: int = 3) -> str:
        """Return the end of what it printed, for a sentence about its failure."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-count:])


class OwnedProcesses:
    """Everything that runs for a demo; from the main thread only, with which children die."""

    def __init__(self, folder: Path, keep: bool) -> None:
        self._folder = folder
        self._recorded: set[Identity] = set()
        self._children: list[Child] = []
        self._reaper = subprocess.Popen(
            [*_PYTHON, str(reaper.__file__)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._send_note({"folder": str(folder), "keep": keep})

    @property
    def children(self) -> tuple[Child, ...]:
        """Return all that was started here, in order."""
        return tuple(self._children)

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Child:
        """Start a program in a process group of its own; what it prints goes to NAME.log."""
        log = self._folder / f"{name}.log"
        line = [*_PYTHON, str(die_with_parent.__file__), str(os.getpid()), *command]
        with log.open("ab") as sink:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**environ, MARK: str(self._folder)},
                process_group=0,
            )
        child = Child(name, process, log)
        self._children.append(child)
        self._record(process.pid)
        return child

    def record_descendants(self) -> None:
        """Write down what the children have started since the last look."""
        roots = [child.process.pid for child in self._children]
        for pid in reaper.descendants(roots, reaper.parents()):
            self._record(pid)

    def below(self, *roots: Child) -> list[Identity]:
        """Return the living processes of these children, the children first."""
        pids = [child.process.pid for child in roots]
        found = [*pids, *sorted(reaper.descendants(pids, reaper.parents()))]
        return [process for process in map(reaper.identify, found) if process]

    def close(self) -> None:
        """Let the reaper kill what is left and remove the folder; return when it has."""
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait(_REAPER_PATIENCE_S)
        for child in self._children:
            child.process.wait(_REAPER_PATIENCE_S)

    def _record(self, pid: int) -> None:
        process = reaper.identify(pid)
        if process is not None and process not in self._recorded:
            self._recorded.add(process)
            self._send_note({"pid": process.pid, "start": process.start})

    def _send_note(self, note: dict[str, object]) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(json.dumps(note) + "\n")
        self._reaper.stdin.flush()
