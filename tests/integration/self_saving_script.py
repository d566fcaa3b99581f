"""A training script without Everstep: it prints its steps, and saves its state itself.

    python self_saving_script.py SEED FOLDER

What it does follows from the seed, and when it is killed, which it does itself. It writes down what
really happened with the machine's boot clock, as lines of JSON.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def now_ns() -> int:
    """Return the boot clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def process_started_ns() -> int:
    """Return when the kernel made this process, to a hundredth of a second."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[19]) * 1_000_000_000 // _TICKS_PER_S


class Script:
    """One attempt to make all steps."""

    def __init__(self, seed: int, folder: Path) -> None:
        rng = random.Random(seed)
        self.steps = rng.randint(36, 48)
        self.step_s = rng.uniform(0.3, 0.4)
        self.saves_every = rng.randint(5, 12)
        self.save_s = self.step_s * rng.uniform(0.3, 1.5)
        # At which step it is killed that way into it, by attempt.
        at = sorted(rng.sample(range(8, self.steps - 3), 2))
        self.kills = [(step, rng.uniform(0.2, 0.8)) for step in at]
        # By how much the machine let it sleep longer than it had asked for, in all.
        self.late_ns = 0
        self.state, self.diary = folder / f"state-{seed}", folder / f"diary-{seed}"

    def write(self, *line: object) -> None:
        """Write down what happened."""
        with self.diary.open("a", encoding="ascii") as file:
            file.write(json.dumps([int(os.environ["EVERSTEP_GENERATION"]), *line]) + "\n")

    def sleep(self, time_s: float) -> None:
        """Sleep, and note how late the machine is."""
        begun_ns = now_ns()
        time.sleep(time_s)
        self.late_ns += now_ns() - begun_ns - round(time_s * 1e9)

    def run(self, began_ns: int) -> None:
        """Go on where the newest state was saved, and be killed when it is time."""
        known = self.diary.read_text(encoding="ascii") if self.diary.exists() else ""
        attempt = known.count("started")
        self.write("started", process_started_ns(), began_ns)
        self.sleep(0.4)  # as long as it takes to import, and to load what was saved
        first = int(self.state.read_text(encoding="ascii")) if self.state.exists() else 0
        begun_ns = now_ns()
        self.write("begun", begun_ns)
        for step in range(first, self.steps):
            self.work(step, attempt)
            print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
            ended_ns = now_ns()
            self.write("step", step, begun_ns, ended_ns)
            self.write("late", self.late_ns)
            begun_ns = ended_ns
            if (step + 1) % self.saves_every == 0:
                self.sleep(self.save_s)
                self.state.write_text(str(step + 1), encoding="ascii")

    def work(self, step: int, attempt: int) -> None:
        """Make a step, or half of one."""
        at, share = self.kills[attempt] if attempt < len(self.kills) else (-1, 0.0)
        if step == at:
            self.sleep(self.step_s * share)
            self.write("killed", now_ns())
            os.kill(os.getpid(), signal.SIGKILL)
        self.sleep(self.step_s)


if __name__ == "__main__":
    Script(int(sys.argv[1]), Path(sys.argv[2])).run(now_ns())
