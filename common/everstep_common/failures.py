"""How a training process died, from its exit code, its signal and its last lines of stderr."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from everstep_common.tracebacks import last_chain, plain

# Grows with every change of the table, so that a record says which one judged it.
TABLE_VERSION = 1


class Side(Enum):
    """Whose failure a kind of death is, before anything else is known."""

    # The program's: with the same data it happens again, on every node.
    SCRIPT = "script"
    # The node's own word.
    NODE = "node"
    # From outside, or of the moment: the next attempt may do.
    TRANSIENT = "transient"
    # Another rank died first.
    CONSEQUENCE = "consequence"
    # The program's or the node's; only a repetition tells.
    UNKNOWN = "unknown"


KINDS: Mapping[str, Side] = MappingProxyType(
    {
        "import": Side.SCRIPT,
        "usage": Side.SCRIPT,
        "assertion": Side.SCRIPT,
        "device_memory": Side.SCRIPT,
        "exception": Side.SCRIPT,
        "device": Side.NODE,
        "cuda": Side.UNKNOWN,
        "crash": Side.UNKNOWN,
        "exit": Side.UNKNOWN,
        "host_memory": Side.TRANSIENT,
        "storage": Side.TRANSIENT,
        # Our own word: the state could not be restored, which an older one may cure.
        "state": Side.TRANSIENT,
        "network": Side.TRANSIENT,
        # SIGKILL and SIGTERM come from the kernel or a person, not from broken hardware.
        "killed": Side.TRANSIENT,
        # Of the data, the state or a device: an older state is tried first.
        "nan": Side.TRANSIENT,
        "collective": Side.CONSEQUENCE,
    }
)

# The first pattern that fits decides, so the special stand before the general.
# Texts: cudaGetErrorString of CUDA 12, torch 2.13, NCCL 2.27, gloo, CPython 3.11, the kernel's
# mm/oom_kill.c, slurmstepd 23.
_TEXTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("state", re.compile(r"\beverstep\.[\w.]*(?:RestoreError|RefusedError)\b")),
    ("assertion", re.compile(r"device-side assert")),
    (
        "device_memory",
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|"
            r"Cuda failure \d* ?'?out of memory|CUBLAS_STATUS_ALLOC_FAILED|"
            r"HIP out of memory|NPU out of memory"
        ),
    ),
    (
        "device",
        re.compile(
            r"uncorrectable ECC|uncorrectable NVLink|Nvlink (?:uncorrectable )?error|"
            r"hardware stack error|no CUDA-capable device|GPU is lost|"
            r"fallen off the bus|system not yet initialized|driver initialization failed|"
            r"device is not ready|CUDA driver error: unknown error"
        ),
    ),
    (
        "storage",
        re.compile(
            r"Errno (?:5|28|30|116|122)\]|No space left on device|Stale file handle|"
            r"Input/output error|Disk quota exceeded|Read-only file system"
        ),
    ),
    (
        "host_memory",
        re.compile(
            r"[Oo]ut of memory: Killed process|oom-kill:constraint|oom_kill event|"
            r"OOM Killed|\bMemoryError\b|Cannot allocate memory|std::bad_alloc|"
            r"out of shared memory"
        ),
    ),
    (
        "nan",
        re.compile(
            r"\bBadStepError\b|returned nan values in its|found NaN in local|"
            r"found Inf in local|[Ll]oss is (?:nan|inf|NaN|Inf)\b"
        ),
    ),
    ("import", re.compile(r"ModuleNotFoundError|\bImportError\b|SyntaxError|IndentationError")),
    (
        "cuda",
        re.compile(
            r"CUDA error|Cuda failure|unhandled cuda error|CUBLAS_STATUS|CUDNN_STATUS|"
            r"cudaError[A-Z]|CUDA driver error|AcceleratorError|HIP error|NPU error"
        ),
    ),
    (
        "collective",
        re.compile(
            r"\bNCCL\b|\bnccl[A-Z]\w*Error|\bgloo\b|ProcessGroup|TCPStore|"
            r"DistNetworkError|DistStoreError|DistBackendError|collective operation|"
            r"Connection (?:closed|reset) by peer|c10d|monitoredBarrier|"
            r"HCCL|Broken pipe"
        ),
    ),
    (
        "network",
        re.compile(
            r"gaierror|Max retries exceeded|[Nn]ame resolution|Name or service not known|"
            r"Connection (?:refused|timed out|aborted)|ConnectionError|\bReadTimeout"
        ),
    ),
    ("killed", re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: Killed")),
    ("crash", re.compile(r"DataLoader worker \(pid \d+\) is killed by signal")),
    ("assertion", re.compile(r"\bAssertionError\b")),
)
# What a process of ours, or a batch system, writes without an exception.
_SPOKEN = frozenset({"host_memory", "collective", "cuda", "device", "device_memory", "storage"})
# ``python -m nothing`` says it without a traceback.
_NO_MODULE = re.compile(r"python[\d.]*: (?:No module named|Error while finding module)")
_CRASHES = frozenset({4, 6, 7, 8, 11})  # SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV
_SIGKILL = 9
_USAGE = 2  # argparse and the interpreter itself


@dataclass(frozen=True, slots=True)
class Failure:
    """How a process died: a kind of the table, and its last exception in one line."""

    kind: str
    exception: str


def side(kind: str) -> Side:
    """Return whose failure a kind is; a kind of a newer table is unknown here."""
    return KINDS.get(kind, Side.UNKNOWN)


def classify(exit_code: int, signal: int, last_lines: Sequence[str]) -> Failure:
    """Judge one process that ended with an error, by the last lines of its stderr."""
    if signal == _SIGKILL:
        # Whatever it had written, it did not die of that.
        return Failure(_spoken(last_lines, frozenset({"host_memory"})) or "killed", "")
    chain = last_chain(last_lines)
    exception = chain[-1] if chain else ""
    for told in reversed(chain):
        if kind := _kind_of(told):
            return Failure(kind, exception)
    if signal:
        kind = _spoken(last_lines, _SPOKEN) if signal in _CRASHES else "killed"
        return Failure(kind or "crash", exception)
    if exception:
        return Failure("exception", exception)
    return _without_traceback(exit_code, last_lines)


def _without_traceback(exit_code: int, last_lines: Sequence[str]) -> Failure:
    last = _last_said(last_lines)
    if exit_code == _USAGE:
        return Failure("usage", last)
    if _NO_MODULE.search(last):
        return Failure("import", last)
    return Failure(_spoken(last_lines, _SPOKEN) or "exit", "")


def _kind_of(text: str) -> str:
    return next((kind for kind, pattern in _TEXTS if pattern.search(text)), "")


def _spoken(lines: Sequence[str], kinds: frozenset[str]) -> str:
    """Return the kind that the newest telling line tells of, if it is one of these."""
    found = (_kind_of(plain(line)) for line in reversed(lines))
    return next((kind for kind in found if kind in kinds), "")


def _last_said(lines: Sequence[str]) -> str:
    return next((text for line in reversed(lines) if (text := plain(line).strip())), "")
