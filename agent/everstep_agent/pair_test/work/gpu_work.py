"""GPU work: a kernel of fixed work and copies of fixed size, timed by the GPU's own events."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from ctypes import c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path

from everstep_agent.pair_test.work.cuda_library import Cuda, CudaError, CudaGpu, NoCudaError
from everstep_agent.pair_test.work.figure import Figure, Untested
from everstep_agent.pair_test.work.fma_kernel import (
    BLOCKS_PER_MULTIPROCESSOR,
    FMAS_PER_TURN,
    FUNCTION,
    THREADS_PER_BLOCK,
    fma_ptx,
)
from everstep_agent.pair_test.work.gpu_use import GpuUse

# Some 10 ms on an H100: 2,048 threads x 10,000 x 128 at 128 multiply-adds a clock and 1.8 GHz.
_TURNS = 10_000
# An idle GPU takes some tens of ms to raise its clocks.
_WARM_UP_S, _WARM_UP_RUNS_MAX = 0.15, 40
_REPEATS = 7
# More than the caches of a GPU hold (60 MB on an H100, 126 MB on a B200).
_DEVICE_BYTES, _DEVICE_COPIES = 256 << 20, 8
_HOST_BYTES = 64 << 20
_ROOM_BYTES = 2 * _DEVICE_BYTES + _HOST_BYTES + (64 << 20)

_Work = Callable[[], None]


@dataclass
class GpuResults:
    """Measurements of all GPUs, and what could not be measured."""

    figures: list[Figure] = field(default_factory=list)
    untested: list[Untested] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOptions:
    """What is done on GPUs, and where their libraries are."""

    rounds: int = 1
    # How much more than the fixed work is done, on purpose.
    factor: float = 1.0
    deadline_s: float = 5.0
    cuda_library: str = "libcuda.so.1"
    nvml_library: str = "libnvidia-ml.so.1"
    sys: Path = Path("/sys")


def measure_gpus(options: GpuOptions) -> GpuResults:
    """Test all GPUs that nobody uses, at the same time, as training loads them."""
    results = GpuResults()
    try:
        cuda = Cuda(options.cuda_library)
        gpus = cuda.gpus()
    except NoCudaError:
        return results  # a node without GPUs of this vendor
    except CudaError as error:
        results.untested.append(Untested("gpus", str(error)))
        return results
    use, copying = GpuUse(options.nvml_library), threading.Lock()
    results.models = [gpu.name for gpu in gpus]
    tests = [_GpuTest(cuda, gpu, f"gpu{i}", copying) for i, gpu in enumerate(gpus)]
    running = []
    for test in tests:
        if why := use.why_not_tested(test.gpu.pci):
            results.untested.append(Untested(test.name, f"GPU {test.gpu.pci}: {why}"))
            continue
        thread = threading.Thread(target=test.run, args=(options,), name=test.name, daemon=True)
        thread.start()
        running.append((test, thread))
    until = _now_s() + options.deadline_s
    for test, thread in running:
        thread.join(max(0.0, until - _now_s()))
        _collect(test, thread.is_alive(), results)
    return results


def _collect(test: "_GpuTest", is_late: bool, results: GpuResults) -> None:
    results.figures += list(test.figures)
    if is_late:
        test.failure = test.failure or "the driver did not finish in time"
    if test.failure:
        results.untested.append(Untested(test.name, f"GPU {test.gpu.pci}: {test.failure}"))


def _now_s() -> float:
    return os.times().elapsed


class _GpuTest:
    """Test of one GPU, in a thread of its own: a context belongs to one."""

    def __init__(self, cuda: Cuda, gpu: CudaGpu, name: str, copying: threading.Lock) -> None:
        self.gpu = gpu
        self.name = name
        self.figures: list[Figure] = []
        self.failure = ""
        self._cuda = cuda
        # Copies from the host one GPU at a time: together they share the host's memory.
        self._copying = copying

    def run(self, options: GpuOptions) -> None:
        """Measure everything, or say why not."""
        try:
            _stay_near(options.sys, self.gpu.pci)
            with self._cuda.context(self.gpu):
                self._measure(options)
        except (CudaError, OSError) as error:
            self.failure = str(error)

    def _measure(self, options: GpuOptions) -> None:
        free = self._cuda.free_bytes()
        if free < _ROOM_BYTES:
            self.failure = f"only {free >> 20} MiB of its memory are free, the test takes "
            self.failure += f"{_ROOM_BYTES >> 20} MiB"
            return
        function = self._cuda.load(fma_ptx(), FUNCTION)
        for _ in range(options.rounds):
            self._compute(function, round(_TURNS * options.factor))
            with self._memory() as (one, other):
                self._copy_on_device(one, other)
                with self._copying:
                    self._copy_from_host(one)

    def _compute(self, function: c_void_p, more_turns: int) -> None:
        blocks = self.gpu.multiprocessors * BLOCKS_PER_MULTIPROCESSOR
        threads = blocks * THREADS_PER_BLOCK
        results = self._cuda.allocate(4 * threads)
        # The parameters are read at the launch, from where these point to.
        address, turns = c_uint64(results), c_uint(more_turns)
        parameters = (c_void_p * 2)(
            ctypes.cast(ctypes.pointer(address), c_void_p),
            ctypes.cast(ctypes.pointer(turns), c_void_p),
        )

        def launch() -> None:
            grid, block = (blocks, 1, 1), (THREADS_PER_BLOCK, 1, 1)
            call = self._cuda.call
            call("cuLaunchKernel", function, *grid, *block, 0, None, parameters, None)

        self._warm_up(launch)
        gfmas = threads * _TURNS * FMAS_PER_TURN / 1e9
        self._time("compute", gfmas, "GFMA", launch)
        if not self._is_consistent(results, 4 * threads):
            self.failure = "it computed different results of the same work"
        self._cuda.call("cuMemFree_v2", results)

    def _warm_up(self, work: _Work) -> None:
        spent_s = 0.0
        for _ in range(_WARM_UP_RUNS_MAX):
            spent_s += self._time_once(work)
            if spent_s >= _WARM_UP_S:
                return

    def _is_consistent(self, results: int, size: int) -> bool:
        """Return whether all blocks computed the same: a GPU that computes wrongly is worse."""
        copied = ctypes.create_string_buffer(size)
        self._cuda.call("cuMemcpyDtoHAsync_v2", copied, results, size, None)
        self._cuda.call("cuCtxSynchronize")
        block = copied.raw[: 4 * THREADS_PER_BLOCK]
        return copied.raw == block * (size // len(block))

    @contextlib.contextmanager
    def _memory(self) -> Iterator[tuple[int, int]]:
        one, other = self._cuda.allocate(_DEVICE_BYTES), 0
        try:
            other = self._cuda.allocate(_DEVICE_BYTES)
            self._cuda.call("cuMemsetD8Async", one, 0x5A, _DEVICE_BYTES, None)
            yield one, other
        finally:
            for address in filter(None, (one, other)):
                self._cuda.call("cuMemFree_v2", address)

    def _copy_on_device(self, one: int, other: int) -> None:
        def copy() -> None:
            for _ in range(_DEVICE_COPIES):
                self._cuda.call("cuMemcpyDtoDAsync_v2", other, one, _DEVICE_BYTES, None)

        # What is copied is read and written.
        self._time_once(copy)
        self._time("memory", 2 * _DEVICE_COPIES * _DEVICE_BYTES / 1e9, "GB", copy)

    def _copy_from_host(self, device: int) -> None:
        host = self._cuda.allocate_host(_HOST_BYTES)
        call = self._cuda.call

        def send() -> None:
            call("cuMemcpyHtoDAsync_v2", device, host, _HOST_BYTES, None)

        def fetch() -> None:
            call("cuMemcpyDtoHAsync_v2", host, device, _HOST_BYTES, None)

        try:
            for name, copy in (("from host", send), ("to host", fetch)):
                self._time_once(copy)
                self._time(name, _HOST_BYTES / 1e9, "GB", copy)
        finally:
            call("cuMemFreeHost", host)

    def _time(self, name: str, amount: float, unit: str, work: _Work) -> None:
        seconds = tuple(self._time_once(work) for _ in range(_REPEATS))
        self.figures.append(Figure(f"{self.name} {name}", amount, unit, seconds))

    def _time_once(self, work: _Work) -> float:
        start, end = self._cuda.event(), self._cuda.event()
        self._cuda.call("cuEventRecord", start, None)
        work()
        self._cuda.call("cuEventRecord", end, None)
        took_s = self._cuda.elapsed_s(start, end)
        for event in (start, end):
            self._cuda.call("cuEventDestroy_v2", event)
        return took_s


def _stay_near(sys: Path, pci: str) -> None:
    """Run this thread at the GPU's own socket: its memory is there, and copies are alike.

    Raises OSError: from another socket copies take longer, which would be this node's fault.
    """
    try:
        listed = (sys / "bus/pci/devices" / pci / "local_cpulist").read_text(encoding="ascii")
        near = _numbers(listed) & os.sched_getaffinity(0)
    except (OSError, ValueError):
        return  # the kernel does not tell where it is
    if near:
        os.sched_setaffinity(threading.get_native_id(), near)


def _numbers(text: str) -> set[int]:
    """Return the numbers of a list such as 0-3,8. Raises ValueError."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
