"""Rounds of a run, played one after the other in the run's own namespaces."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from field.__main__ import parse
from field.machines.image import REPOSITORY
from field.namespaces import STOPPED, stop_when_asked
from field.observation.records import write
from field.rounds import Options, Play, StoppedError, play


class Run:
    """Plays rounds until all are there, or until it is told to stop."""

    def __init__(self, work: Path, options: Options, rounds: int) -> None:
        self._work, self._options, self._rounds = work, options, rounds
        self._playing: Play | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the round that is played, without keeping it."""
        self._stopped = True
        if self._playing is not None:
            self._playing.stop()

    def play(self) -> int:
        """Play every round that is not kept yet; return an exit code."""
        for number in range(self._rounds):
            path = self._options.folder / f"round-{number:02}.json"
            if path.exists():
                continue
            self._tell(number)
            try:
                made = play(self._options, number, self._work / f"round-{number}", self._begin)
            except StoppedError:
                return STOPPED
            write(path, made)
        return 0

    def _begin(self, playing: Play) -> None:
        self._playing = playing
        if self._stopped:
            playing.stop()

    def _tell(self, number: int) -> None:
        left_s = (self._rounds - number) * (self._options.round_s + self._options.patience_s / 2)
        until = time.strftime("%H:%M", time.localtime(time.time() + left_s))
        print(f"round {number + 1} of {self._rounds}, all over about {until}", flush=True)


def commit() -> str:
    """Return the commit of this checkout; empty where git cannot tell."""
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Play what the command line says."""
    work, image, folder, *rest = arguments
    told = parse(rest)
    rounds = max(1, round(told.minutes / told.round_minutes))
    options = Options(
        machines=told.machines,
        round_s=60.0 * min(told.minutes, told.round_minutes),
        seed=told.seed,
        folder=Path(folder),
        image=Path(image),
        tracks=told.tracks,
        torch_ranks=told.torch_ranks,
        steps=told.steps,
        step_s=told.step_seconds,
        memory_bytes=told.memory_mib << 20,
        commit=commit(),
        mode=told.mode,
        shapes=tuple(told.shapes),
        faults=tuple(told.faults),
    )
    run = Run(Path(work), options, rounds)
    stop_when_asked(run.stop)
    return run.play()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
