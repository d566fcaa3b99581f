"""A training script that evaluates, saves and waits now and then, and writes down for how long.

python pausing_script.py DIARY
"""

import json
import sys
import time
from pathlib import Path

import everstep

_STEPS, _STEP_S = 40, 0.1
# After which steps it does what for how long.
_PAUSES = {10: ("evaluation", 1.5), 20: ("checkpoint", 1.0), 25: ("operator", 0.7)}


def main(diary: Path) -> None:
    """Make all steps."""
    run, spent = everstep.init(), dict[str, int]()
    for step in range(_STEPS):
        time.sleep(_STEP_S)
        run.step(step)
        if step in _PAUSES:
            name, lasted_s = _PAUSES[step]
            begun_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            with run.pause(name):
                time.sleep(lasted_s)
            spent[name] = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - begun_ns
    diary.write_text(json.dumps(spent), encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
