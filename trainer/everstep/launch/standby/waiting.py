"""A warm standby: imports what a rank will need, waits, and becomes the rank.

Run by path by the interpreter that the rank's command names, with the descriptors of two pipes:
``waiting.py READY ORDER``. It imports the standard library only, and nothing of everstep's.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import types
from typing import TypedDict

_ORDER_BYTES_MAX = 8 * 1024 * 1024


class Warming(TypedDict):
    """First line of the order pipe: what to do before waiting."""

    modules: list[str]
    quiet: bool
    device: int


class Becoming(TypedDict):
    """Second line: which rank to be."""

    script: str
    module: str
    arguments: list[str]
    environ: dict[str, str]
    isolated: bool


def main() -> None:
    """Warm up, wait, and run the command as if the interpreter had been started for it."""
    ready, order = int(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(order, "rb") as lines:
        warming: Warming = json.loads(lines.readline(_ORDER_BYTES_MAX))
        why = warm(warming)
        with contextlib.suppress(BrokenPipeError):
            os.write(ready, f"{why}\n".encode())
        os.close(ready)
        becoming = lines.readline(_ORDER_BYTES_MAX)
    if not becoming:  # the launcher is gone
        sys.exit(0)
    become(json.loads(becoming))


def warm(warming: Warming) -> str:
    """Import, and open the device; return what could not be done. The rank itself will tell."""
    sys.path.pop(0)  # the folder of this file
    problems = []
    for name in warming["modules"]:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - foreign code, and SystemExit is one of it
            if not warming["quiet"]:
                problems.append(f"{name}: {type(error).__name__}")
    if warming["device"] >= 0 and "torch" in sys.modules:
        try:
            _open_device(warming["device"])
        except Exception as error:  # noqa: BLE001 - a driver's errors are of every type
            problems.append(f"device {warming['device']}: {error}")
    return "; ".join(problems).replace("\n", " ")


def _open_device(index: int) -> None:
    """Create the device's context, which takes seconds on a large node."""
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device=f"cuda:{index}")
        torch.cuda.synchronize(index)


def become(order: Becoming) -> None:
    """Run the command in this process; returns as the script does."""
    os.environ.clear()
    os.environ.update(order["environ"])
    if order["module"]:
        if not order["isolated"]:
            sys.path.insert(0, os.getcwd())
        sys.argv = ["-m", *order["arguments"]]
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        return
    if not order["isolated"]:
        sys.path.insert(0, os.path.dirname(os.path.realpath(order["script"])))
    sys.argv = [order["script"], *order["arguments"]]
    _run_script(order["script"])


def _run_script(script: str) -> None:
    """Execute a script as the main module, which spawned processes and pickles look for."""
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        program = os.path.basename(sys.executable)
        print(f"{program}: can't open file {script!r}: {error}", file=sys.stderr)
        sys.exit(2)
    module = types.ModuleType("__main__")
    vars(module).update(__file__=script, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    try:
        exec(compile(source, script, "exec"), vars(module))
    except SystemExit:
        raise
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - what the interpreter itself does at its top
        # Without the frame of this function: the traceback is the script's own.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.stderr.flush()
        sys.exit(1)


if __name__ == "__main__":
    main()
