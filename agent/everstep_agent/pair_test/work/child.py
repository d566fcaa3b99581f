"""Pair test process: does the fixed work once, writes what it took as one line of JSON, and ends.

Started by its path, with options as one JSON object: {"rounds": 3, "factor": 1.0, "host": true}.
It gives up all capabilities first, and the kernel kills it when the agent ends.
"""

import ctypes
import dataclasses
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path

from everstep_common.process_priority import raise_oom_score

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_libc = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_VERSION = 0x20080522
# Nothing of the test is left on disk, all GPUs are seen, and they are counted as PCI counts them.
_ENVIRONMENT = {"CUDA_CACHE_DISABLE": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
_HIDES = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_INJECTION64_PATH")


def main(text: str) -> None:
    """Do the work."""
    from everstep_agent.pair_test.work.figure import WorkDone
    from everstep_agent.pair_test.work.gpu_work import GpuOptions, measure_gpus
    from everstep_agent.pair_test.work.host_work import measure_host

    options = json.loads(text)
    rounds, factor = options.get("rounds", 1), options.get("factor", 1.0)
    host_rounds = rounds if options.get("host", True) else 0
    figures = [one for _ in range(host_rounds) for one in measure_host(factor=factor)]
    deadline_s = options.get("gpu_deadline_s", 5.0)
    gpus = measure_gpus(GpuOptions(rounds=rounds, factor=factor, deadline_s=deadline_s))
    done = WorkDone((*figures, *gpus.figures), tuple(gpus.untested), tuple(gpus.models))
    print(json.dumps(dataclasses.asdict(done), separators=(",", ":")), flush=True)


def give_up_rights() -> None:
    """Keep no capability, gain none, and die with the agent. Raises OSError."""
    # The agent is protected from the out-of-memory killer; this process must not inherit that.
    raise_oom_score(0, Path("/proc/self"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What is ambient goes with it.
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, struct.pack("=6I", *[0] * 6)))
    _control(_PR_SET_NO_NEW_PRIVS, 1)
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _control(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def set_environment() -> None:
    """Have CUDA see every GPU and write no cache."""
    for name in _HIDES:
        os.environ.pop(name, None)
    os.environ.update(_ENVIRONMENT)


if __name__ == "__main__":
    parent = os.getppid()
    give_up_rights()
    set_environment()
    # Started by its path: its neighbours are found from here, wherever the agent is installed.
    sys.path.append(str(Path(__file__).parents[3]))
    if os.getppid() == parent:
        main(sys.argv[1])
        # A thread that is stuck in the driver must not keep the process.
        os._exit(0)
