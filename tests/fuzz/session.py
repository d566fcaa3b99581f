"""Fuzz session: cases are handed to a format's world one after another, and finds are kept."""

import asyncio
import hashlib
import json
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.choices import Choices
from fuzz.format import Format, Handler
from fuzz.watch import Held, Watch, watching

# A case may take so much CPU of this process, with all of its threads.
CPU_S_MAX = 1.0
# Memory that the second half of the cases may add: so much for each, and no less than this at all.
GROWTH_BYTES_PER_CASE_MAX = 1024
GROWTH_BYTES_MIN = 16 * 1024 * 1024
_FINDS_MAX = 50


@dataclass(slots=True)
class Session:
    """One format in this process. Cases are bytes; the same bytes are the same case."""

    format: Format
    finds_folder: Path
    cases: int = 0
    slowest_s: float = 0.0
    handled_s: float = 0.0
    finds: dict[str, str] = field(default_factory=dict)
    # Resident memory whenever a world was closed, after how many cases.
    memory: list[tuple[int, int]] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _stack: ExitStack = field(default_factory=ExitStack)
    _watch: Watch = field(default_factory=Watch)
    _before: Held | None = None
    _world: AbstractAsyncContextManager[Handler] | None = None
    _handle: Handler | None = None
    # The inputs that this world has taken.
    _history: list[bytes] = field(default_factory=list)

    def open(self) -> None:
        """Begin to watch this process."""
        asyncio.set_event_loop(self._loop)
        self._watch = self._stack.enter_context(watching())
        self._loop.set_exception_handler(self._watch.on_loop_error)

    def close(self) -> None:
        """Close the world, and end the watch."""
        self._close_world()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        asyncio.set_event_loop(None)
        self._stack.close()

    def run(self, data: bytes) -> None:
        """Hand one case to the world, a new one if it is time for that."""
        if len(self._history) >= self.format.cases_per_world:
            self._close_world()
        case = self.format.make(Choices(data))
        self._open_world()
        assert self._handle is not None
        self._history.append(data)
        self.cases += 1
        before_s = time.process_time()
        try:
            self._loop.run_until_complete(self._handle(case))
        except Exception:  # noqa: BLE001 - whatever it is, the case has found it
            self._keep(traceback.format_exc())
        took_s = time.process_time() - before_s
        self.handled_s += took_s
        self.slowest_s = max(self.slowest_s, took_s)
        if took_s > CPU_S_MAX:
            self._keep(f"CPU: a case took {took_s:.1f} s")
        self._take_found()

    def growth_bytes(self) -> int:
        """Return what the second half of the cases has added to the memory; 0 for few worlds."""
        if len(self.memory) < 4:
            return 0
        return self.memory[-1][1] - self.memory[len(self.memory) // 2][1]

    def check_memory(self) -> None:
        """Take too much growth of the memory for a find."""
        if len(self.memory) < 4:
            return
        cases = self.memory[-1][0] - self.memory[len(self.memory) // 2][0]
        if self.growth_bytes() > max(GROWTH_BYTES_MIN, cases * GROWTH_BYTES_PER_CASE_MAX):
            self._keep(f"MEMORY: {self.growth_bytes()} bytes more after {cases} cases")

    def _open_world(self) -> None:
        if self._handle is None:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(dir=_fast())))
            self._world = self.format.world(folder)
            self._handle = self._loop.run_until_complete(self._world.__aenter__())

    def _close_world(self) -> None:
        world, self._world, self._handle = self._world, None, None
        if world is None:
            return
        try:
            self._loop.run_until_complete(world.__aexit__(None, None, None))
        except Exception:  # noqa: BLE001 - as above
            self._keep(traceback.format_exc())
        del world
        self._take_found()
        held = Held.now()
        self.memory.append((self.cases, held.memory_bytes))
        if self._before is None:
            self._before = held
        elif left := held.left_behind(self._before):
            self._keep(f"LEFT BEHIND: {left}")
            self._before = held
        self._history.clear()

    def _take_found(self) -> None:
        for text in self._watch.take():
            self._keep(text)

    def _keep(self, text: str) -> None:
        """Keep a find of its kind, with all that its world has taken, the last being the case."""
        kind = kind_of(text)
        if kind in self.finds or len(self.finds) >= _FINDS_MAX:
            return
        name = hashlib.sha256(kind.encode()).hexdigest()[:12]
        self.finds[kind] = name
        self.finds_folder.mkdir(parents=True, exist_ok=True)
        found = {"found": text, "inputs": [data.hex() for data in self._history]}
        (self.finds_folder / f"{name}.json").write_text(json.dumps(found, indent=1))


def kind_of(text: str) -> str:
    """Return what two finds have alike: the error's type, and where in the product it was."""
    lines = [line.strip() for line in text.strip().splitlines()]
    places = [line for line in lines if line.startswith("File ") and "/everstep_" in line]
    return f"{lines[-1].partition(':')[0][:100]} {places[-1] if places else ''}"


def repeat(format: Format, path: Path) -> Sequence[str]:
    """Hand the inputs of a find to a new world again; return what is found, as texts."""
    inputs = [bytes.fromhex(text) for text in json.loads(path.read_text())["inputs"]]
    for last in ([inputs[-1]], inputs) if inputs else ():
        with tempfile.TemporaryDirectory() as folder:
            session = Session(format, Path(folder))
            session.open()
            try:
                for data in last:
                    session.run(data)
            finally:
                session.close()
            if session.finds:
                return [json.loads(found.read_text())["found"] for found in Path(folder).iterdir()]
    return []


def _fast() -> str | None:
    """Return a folder in memory, where there is one: worlds write much that nobody keeps."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
