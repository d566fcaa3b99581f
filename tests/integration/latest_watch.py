"""Watches where ``latest`` of a job points, all the time, and checks that it is whole there."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import xxhash


@dataclass(frozen=True, slots=True, order=True)
class Pointed:
    """What ``latest`` said: on behalf of which generation, and the step, as (generation, step)."""

    generation: int
    target: tuple[int, int]


class LatestWatch:
    """Reads it as fast as it can while the context is open; ``history`` has every change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.history: list[Pointed] = []
        self.problems: list[str] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="latest")

    def __enter__(self) -> "LatestWatch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def check(self, began_after: Mapping[int, int]) -> None:
        """Raise AssertionError unless it only went forward, and never to a branch that was left.

        ``began_after`` maps generations to the step that they went on from.
        """
        assert not self.problems, self.problems
        assert self.looks > 10
        assert self.history == sorted(set(self.history))
        for seen in self.history:
            generation, step = seen.target
            for later, start in began_after.items():
                if generation < later <= seen.generation:
                    assert step <= start, f"{seen} is of a branch that generation {later} left"

    @property
    def newest(self) -> Pointed:
        """Return where it points now; generation 0 before the first."""
        return self.history[-1] if self.history else Pointed(0, (0, -1))

    def _watch(self) -> None:
        while not self._over.wait(0.001):
            self._look()
        self._look()

    def _look(self) -> None:
        content = self._read()
        if content is not None:
            self.looks += 1
            self._see(content)
        elif self.history:
            self.problems.append("latest is gone")

    def _see(self, content: bytes) -> None:
        try:
            said = json.loads(content)
        except ValueError:
            self.problems.append(f"torn: {content[:80]!r}")
            return
        target = said["target"] or {"generation": 0, "step": -1}
        seen = Pointed(said["generation"], (target["generation"], target["step"]))
        if seen == self.newest:
            return
        self.history.append(seen)
        # It may have moved on meanwhile, and what it pointed to may have been removed.
        if said["target"] and (why := self._problem(said)) and self._read() == content:
            self.problems.append(f"{seen}: {why}")

    def _problem(self, said: Mapping[str, str]) -> str:
        folder = self._folder / said["folder"]
        try:
            manifest = (folder / "manifest.json").read_bytes()
            for file in json.loads(manifest)["files"]:
                data = folder / f"rank-{file['rank']}.safetensors"
                if data.stat().st_size != file["file_bytes"]:
                    return f"{data.name} is not complete"
        except (OSError, ValueError) as error:
            return str(error)
        same = xxhash.xxh3_128_hexdigest(manifest) == said["manifest_hash"]
        return "" if same else "another manifest"

    def _read(self) -> bytes | None:
        try:
            return (self._folder / "latest").read_bytes()
        except FileNotFoundError:
            return None
