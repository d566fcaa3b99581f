"""Standby process: imports what a rank will need, waits, and becomes the rank.

When what it has imported has been changed meanwhile, the rank begins in a new interpreter instead,
as the same process.

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
import time
import types
from typing import NoReturn, TypedDict

_INSTALLED = ("site-packages", "dist-packages")
# The kernel stamps files with the time of its last tick, 1 to 10 ms ago.
_TICK_NS = 10_000_000
_ORDER_BYTES_MAX = 8 * 1024 * 1024


class Warming(TypedDict):
    """First line of the order pipe: what to import, and which device to open, before waiting."""

    modules: list[str]
    quiet: bool
    device: int


class Becoming(TypedDict):
    """Second line of the order pipe: which rank to be."""

    script: str
    module: str
    arguments: list[str]
    environ: dict[str, str]
    isolated: bool
    # What starts the rank in a new interpreter.
    command: list[str]


class Sources:
    """Files of the modules that were imported, and their stamps at that time.

    Of what an installer has put there, only the folder that it changes with each package is looked
    at: torch alone has 2,000 files, 4 ms on a local disk, and much more on a network file system
    that all ranks of a job ask at once.
    """

    def __init__(self) -> None:
        self._began_ns = time.time_ns() - _TICK_NS
        self._seen: set[str] = set()
        self._count = 0
        # None: it was changed meanwhile, before it was read or after.
        self._stamps: dict[str, tuple[int, int, int] | None] = {}

    def note(self) -> None:
        """Remember the files of the modules that have come since the last call."""
        if len(sys.modules) == self._count:  # most names of a list have come with another
            return
        self._count = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if name not in self._seen:
                self._seen.add(name)
                self._note(_place(getattr(module, "__file__", None)))

    def _note(self, place: str) -> None:
        stamp = _stamp(place) if place and place not in self._stamps else None
        if stamp is not None:
            meanwhile = self._began_ns <= stamp[0] <= time.time_ns()
            self._stamps[place] = None if meanwhile else stamp

    def changed(self) -> bool:
        """Return whether anything is not as it was when it was imported."""
        return any(stamp is None or _stamp(place) != stamp for place, stamp in self._stamps.items())


def _place(file: object) -> str:
    if not isinstance(file, str) or not os.path.isabs(file):
        return ""
    parts = file.split(os.sep)
    for name in _INSTALLED:
        if name in parts:
            return os.sep.join(parts[: parts.index(name) + 1])
    library = os.path.dirname(os.__file__)
    return library if file.startswith(library + os.sep) else file


def _stamp(place: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(place)
    except OSError:  # gone, or inside an archive
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def main() -> None:
    """Warm up, wait, and run the command as if the interpreter had been started for it."""
    ready, order = int(sys.argv[1]), int(sys.argv[2])
    sources = Sources()
    with os.fdopen(order, "rb") as lines:
        warming: Warming = json.loads(lines.readline(_ORDER_BYTES_MAX))
        why = warm(warming, sources)
        with contextlib.suppress(BrokenPipeError):
            os.write(ready, f"{why}\n".encode())
        os.close(ready)
        becoming = lines.readline(_ORDER_BYTES_MAX)
    if not becoming:  # the launcher is gone
        sys.exit(0)
    rank: Becoming = json.loads(becoming)
    if sources.changed() or shadowed(folder_of(rank)) or not device_is_alive(warming["device"]):
        begin_anew(rank)
    become(rank)


def warm(warming: Warming, sources: Sources) -> str:
    """Import, and open the device; return what could not be done. The rank itself will tell."""
    sys.path.pop(0)  # the folder of this file
    problems = []
    sources.note()
    for name in warming["modules"]:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - foreign code, and SystemExit is one of it
            if not warming["quiet"]:
                problems.append(f"{name}: {type(error).__name__}")
        sources.note()
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


def device_is_alive(index: int) -> bool:
    """Return whether the context that was opened can still be used; microseconds."""
    if index < 0 or "torch" not in sys.modules:
        return True
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    try:
        torch.cuda.synchronize(index)
    except Exception:  # noqa: BLE001 - a driver's errors are of every type
        return False
    return True


def folder_of(order: Becoming) -> str:
    """Return what comes first in the rank's ``sys.path``; "": nothing of its own."""
    if order["isolated"]:
        return ""
    script = order["script"]
    return os.path.dirname(os.path.realpath(script)) if script else os.getcwd()


def shadowed(folder: str) -> bool:
    """Return whether something was imported of which the rank's own folder has another."""
    try:
        entries = set(os.listdir(folder)) if folder else set()
    except OSError:
        return False
    for name, module in list(sys.modules.items()):
        if "." in name or name == "__main__" or not entries.intersection((name, f"{name}.py")):
            continue
        own = (os.path.join(folder, f"{name}.py"), os.path.join(folder, name, "__init__.py"))
        loaded = os.path.realpath(getattr(module, "__file__", None) or "")
        if loaded not in map(os.path.realpath, own) and any(map(os.path.isfile, own)):
            return True
    return False


def begin_anew(order: Becoming) -> NoReturn:
    """Become the rank in a new interpreter: what was done ahead is of no use."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which the interpreter ignores
        signal.signal(number, signal.SIG_DFL)
    os.execve(order["command"][0], order["command"], order["environ"])


def become(order: Becoming) -> None:
    """Run the command in this process; returns as the script does."""
    os.environ.clear()
    os.environ.update(order["environ"])
    for finder in sys.meta_path:  # what begins with an import was imported before there was a rank
        if watch_gil := getattr(finder, "watch_gil", None):
            watch_gil()
    if folder := folder_of(order):
        sys.path.insert(0, folder)
    if order["module"]:
        sys.argv = ["-m", *order["arguments"]]
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        return
    sys.argv = [order["script"], *order["arguments"]]
    _run_script(order["script"])


def _run_script(script: str) -> None:
    """Execute a script as the main module, which spawned processes and pickles look for."""
    # As the interpreter since 3.9: a script may change its folder, and look for files beside it.
    path = script if os.path.isabs(script) else os.path.join(os.getcwd(), script)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        program = os.path.basename(sys.executable)
        print(f"{program}: can't open file {path!r}: {error}", file=sys.stderr)
        sys.exit(2)
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    try:
        exec(compile(source, path, "exec"), vars(module))
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
