"""Bare loop, the limit of an agent: reads the same files and asks NVML the same, once a second.

It judges nothing, keeps nothing and tells nobody. Arguments: the root of sysfs.
"""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pynvml

# What the agent reads of InfiniBand counters, it reads in every fifth look.
COUNTERS_EVERY = 5
# Recovery action, memory temperature, error counts, remapping (NVML_FI_DEV_… of nvml.h).
_FIELDS = [230, 82, 3, 4, 144, 145]
_PROC = ("stat", "meminfo", "loadavg", "diskstats", "net/dev", "vmstat", "self/stat")
_PORT = ("state", "phys_state", "rate")
_INTERFACE = ("operstate", "carrier", "speed")


def ask(handle: object) -> None:
    """Ask one GPU what the agent asks it every second."""
    pynvml.nvmlDeviceGetMemoryInfo(handle)
    pynvml.nvmlDeviceGetFieldValues(handle, _FIELDS)
    pynvml.nvmlDeviceGetUtilizationRates(handle)
    pynvml.nvmlDeviceGetTemperature(handle, 0)
    pynvml.nvmlDeviceGetPowerUsage(handle)
    pynvml.nvmlDeviceGetClockInfo(handle, 1)
    pynvml.nvmlDeviceGetClockInfo(handle, 2)
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)


def opened(paths: Sequence[Path]) -> list[int]:
    """Open what is there and can be read."""
    return [os.open(path, os.O_RDONLY) for path in paths if os.access(path, os.R_OK)]


def handles() -> Sequence[object]:
    """Return the GPUs; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    return [
        pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
    ]


def main() -> None:
    """Read until killed."""
    sysfs, gpus, looks = Path(sys.argv[1]), handles(), 0
    ports = sorted(sysfs.glob("class/infiniband/*/ports/*"))
    interfaces = sorted(sysfs.glob("class/net/*/"))
    states = opened(
        [Path("/proc") / name for name in _PROC]
        + [port / name for port in ports for name in _PORT]
        + [interface / name for interface in interfaces for name in _INTERFACE]
    )
    counters = opened([file for port in ports for file in sorted(port.glob("*counters/*"))])
    while True:
        for descriptor in states if looks % COUNTERS_EVERY else states + counters:
            with contextlib.suppress(OSError):
                os.pread(descriptor, 1 << 16, 0)
        for gpu in gpus:
            ask(gpu)
        looks += 1
        time.sleep(1.0 - time.monotonic() % 1.0)


if __name__ == "__main__":
    main()
