"""Process of a fleet of simulated nodes: started, asked, stopped, killed and started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.evidence import Note, read_notes
from chaos.fleet import FleetSettings

_END_S = 60.0


@dataclass(slots=True)
class FleetProcess:
    """One fleet; a new process of it goes on with what the nodes have on their disks."""

    name: str
    folder: Path
    settings: FleetSettings
    enter: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    lives: int = 0
    _is_ready: bool = False
    _process: "subprocess.Popen[str] | None" = None

    def start(self) -> None:
        """Start it; the first question waits until its nodes have begun."""
        self.lives += 1
        self._is_ready = False
        settings = self.folder / f"{self.name}.json"
        self.settings.write(settings)
        paths = os.pathsep.join(path for path in sys.path if path)
        files = str(settings), str(self._notes)
        command = [*self.enter, sys.executable, "-m", "chaos.fleet", *files]
        with (self.folder / f"{self.name}.errors").open("a") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": paths, **self.environ},
            )

    @property
    def _notes(self) -> Path:
        return self.folder / f"{self.name}-{self.lives}.notes"

    @property
    def pid(self) -> int:
        """Return its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Return whether it has a process."""
        return self._process is not None and self._process.poll() is None

    def ask(self, *words: object) -> object:
        """Return the answer to a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        if not self._is_ready:
            self._hear()
            self._is_ready = True
        print(*words, file=self._process.stdin, flush=True)
        return self._hear()

    def asked(self, *words: object) -> dict[str, object]:
        """Return an answer that is a table."""
        answer = self.ask(*words)
        assert isinstance(answer, dict)
        return answer

    def seconds(self, *words: object) -> float:
        """Return an answer that is a time."""
        answer = self.ask(*words)
        assert isinstance(answer, float)
        return answer

    def _hear(self) -> object:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = (self.folder / f"{self.name}.errors").read_text()[-2000:]
            raise AssertionError(f"{self.name} has ended: {said}")
        answer: object = json.loads(line)
        return answer

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.signal(signal.SIGKILL)
        self._reap()

    def end(self) -> None:
        """End it in good order."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_END_S)
        self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def notes(self) -> list[Note]:
        """Return what all its processes have noted, in order."""
        paths = [self.folder / f"{self.name}-{life}.notes" for life in range(1, self.lives + 1)]
        return [note for path in paths if path.exists() for note in read_notes(path)]
