"""NVML process: the child process that calls the NVIDIA driver, so that the agent never blocks.

Started by its path. For every line on standard input, ``{"id": 7, "complete": true}``, it writes
one line of JSON with that id and the fields of GpuReading that have changed since its last answer;
events of the driver come unasked, as lines of their own. Without the driver's library it says so
once and ends. It ends with its standard input, that is with the agent.
"""

import contextlib
import ctypes
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import ModuleType

Values = dict[str, object]


class Server:
    """Server of requests on standard input; driver events may come in between."""

    def __init__(self, library: ModuleType) -> None:
        from everstep_agent.probes.gpus.nvml_process.calls import Calls
        from everstep_agent.probes.gpus.nvml_process.events import listen
        from everstep_agent.probes.gpus.nvml_process.gpu import Gpu

        self._calls = Calls(library)
        self._gpus = [Gpu(self._calls, i) for i in range(library.nvmlDeviceGetCount())]
        self._told: list[Values] = [{} for _ in self._gpus]
        self._listen: Callable[[], str] = lambda: listen(library, self._gpus, write)

    def serve(self, requests: Iterable[str]) -> None:
        """Answer until there are no more requests."""
        first = self._facts()
        for line in requests:
            request = json.loads(line)
            complete = bool(request["complete"] or first)
            write({"id": request["id"], **first, **self._read(complete)})
            if first:
                # Events are asked for only after the first answer, which needs the GPUs' handles.
                write({"no_events": self._listen()})
                first = {}

    def _facts(self) -> Values:
        return {
            "driver": self._calls.text("nvmlSystemGetDriverVersion"),
            "library": self._calls.text("nvmlSystemGetNVMLVersion"),
        }

    def _read(self, complete: bool) -> Values:
        began = time.perf_counter()
        gpus = [gpu.read(complete) for gpu in self._gpus]
        spent_s = round(time.perf_counter() - began, 6)
        changed = [
            {name: value for name, value in now.items() if name not in told or told[name] != value}
            for now, told in zip(gpus, self._told, strict=True)
        ]
        for now, told in zip(gpus, self._told, strict=True):
            told.update(now)
        return {"gpus": changed, "complete": complete, "spent_s": spent_s}


_writing = threading.Lock()


def write(answer: Values) -> None:
    """Write one line."""
    with _writing:
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def serve(requests: Iterable[str]) -> None:
    """Answer until there are no more requests."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        write({"absent": "the Python package nvidia-ml-py is not installed"})
        return
    try:
        nvml.nvmlInit()
        server = Server(nvml)
    except nvml.NVMLError as error:
        # No library: no NVIDIA driver on this node. Any other word comes from a driver.
        missing = isinstance(error, nvml.NVMLError_LibraryNotFound)
        why = "NVIDIA driver library not found" if missing else f"NVIDIA driver: {error}"
        write({"absent": why, "absent_code": error.value})
        return
    _trim()
    server.serve(requests)


def _trim() -> None:
    """Give memory back: an interpreter that had to compile pynvml keeps 11 MB of it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    # Started by its path: its neighbours are found from here, wherever the agent is installed.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin)
