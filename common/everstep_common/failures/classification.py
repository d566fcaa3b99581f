"""Failure classification: how a training process died, by its exit code and its last output."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from everstep_common.failures.texts import kind_of
from everstep_common.failures.tracebacks import last_chain, plain

# Version of the table of kinds, raised with every change: a record says which one judged it.
TABLE_VERSION = 6


# Kind of a rank that waited for others until the timeout of its process group.
WAITED_IN_VAIN = "collective_timeout"
# Kind of a rank that got other data than what it had called for.
MISMATCH = "collective_mismatch"
# Kind of a program that a signal ended which its own instructions bring about, such as SIGSEGV.
CRASH = "crash"
# Kind of a program that ended with an exit code of its own, and without an exception.
ENDED_ITSELF = "exit"


class Side(Enum):
    """Whose failure a kind of death is, before anything else is known."""

    # The program's fault: with the same data it happens again, on every node.
    SCRIPT = "script"
    # The node's fault, as its driver or kernel says.
    NODE = "node"
    # The node had no memory left, whoever took it: that counts by node, not by step.
    HOST = "host"
    # A cause from outside, or of the moment: the next attempt may succeed.
    TRANSIENT = "transient"
    # What follows when another rank died first.
    CONSEQUENCE = "consequence"
    # What follows when other ranks do not come: evidence of a hang, and not who hangs.
    WAITED = "waited"
    # What follows when ranks call operations that do not fit together, whichever of them tells:
    # the program's fault, but after another death or a wait in vain just what is left of that.
    UNFIT = "unfit"
    # The program's fault or the node's: only a repetition tells.
    UNKNOWN = "unknown"


KINDS: Mapping[str, Side] = MappingProxyType(
    {
        "import": Side.SCRIPT,
        "usage": Side.SCRIPT,
        "assertion": Side.SCRIPT,
        "device_memory": Side.SCRIPT,
        "exception": Side.SCRIPT,
        # A loss that is no number, again at the same step: its data, its state or its code does it.
        "nan": Side.SCRIPT,
        "device": Side.NODE,
        "cuda": Side.UNKNOWN,
        CRASH: Side.UNKNOWN,
        ENDED_ITSELF: Side.UNKNOWN,
        "host_memory": Side.HOST,
        "storage": Side.TRANSIENT,
        # Everstep's own error: the state could not be restored; an older one may be restorable.
        "state": Side.TRANSIENT,
        "network": Side.TRANSIENT,
        # SIGKILL and SIGTERM come from the kernel or a person, not from broken hardware.
        "killed": Side.TRANSIENT,
        "collective": Side.CONSEQUENCE,
        # A collective's timeout, NCCL's watchdog or heartbeat monitor, gloo's wait: it gave up.
        WAITED_IN_VAIN: Side.WAITED,
        MISMATCH: Side.UNFIT,
    }
)

# Sides of which no other death follows: what they tell of has another beginning.
FOLLOWING = frozenset({Side.CONSEQUENCE, Side.WAITED, Side.UNFIT})

# Kinds of which a process's last lines may tell without an exception in them.
_SPOKEN = frozenset(
    {
        "host_memory",
        "collective",
        WAITED_IN_VAIN,
        MISMATCH,
        "cuda",
        "device",
        "device_memory",
        "storage",
    }
)
# The same for a script that ends itself, which may say why in its own words.
_SPOKEN_AT_EXIT = _SPOKEN | {"nan"}
# What Python writes, without a traceback, for ``python -m`` with a module that does not exist.
_NO_MODULE = re.compile(r"python[\d.]*: (?:No module named|Error while finding module)")
_MEMORY = frozenset({"host_memory", "device_memory"})
_CRASHES = frozenset({4, 5, 6, 7, 8, 11})  # SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV
_SIGKILL = 9
# A shell's exit code is this plus the number of the signal that ended its program.
_SHELL = 128
# Signals that such a code is taken for; crashes, SIGHUP, SIGINT, SIGKILL and SIGTERM. Other codes
# are a script's own.
_OF_A_SHELL = _CRASHES | {1, 2, 9, 15}
# Exit codes for a wrong command line (argparse, the interpreter), and those of a shell for a
# program that it may not start or cannot find.
_USAGE = frozenset({2, 126, 127})
# torch's error for a data loader worker that is gone; its cause names the signal, if there is one.
_WORKER_GONE = re.compile(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly")
# What the main thread raises when NCCL's watchdog has aborted its operation; only the watchdog says
# why: a timeout, or an error of a peer.
_ABORTED = re.compile(r"NCCL communicator (?:was|has been) aborted")
# torch's warning at every end that was not planned; it is the reason for none.
_AFTERWARDS = re.compile(r"process group has NOT been destroyed|destroy_process_group\(\)")


# What tqdm, rich, Keras and their like draw; and how tqdm's ends, behind which a line may begin.
_BAR = re.compile(r"\d%\s*\||\[\d+:\d\d(?::\d\d)?(?:<|, )|[█▉▊▋▌▍▎▏━╸╺]{2}|\[[=#]{2,}[=#>. -]*\]")
_BAR_END = re.compile(r"^[^|]*\d%\s*\|[^|]*\| *[^\[]*\[[^\]]*\]")
# A logger's line that tells of no error: "INFO:root:…", "… - DEBUG - …", "[INFO] …", glog's I.
_ORDINARY = re.compile(r"(?:^|[\s\[|-])(?:INFO|DEBUG|TRACE)(?:[\s:\]|-]|$)|^\[?[ID]\d{4,8} \d\d:")
# What a program that crashes says in one way or another.
_OF_AN_ERROR = re.compile(
    r"(?i:error|fatal|fail|abort|assert|exception|terminat|segmentation|fault|illegal|invalid|"
    r"corrupt|overflow|smash|double free|panic|time[d ]?out|cannot|can't|could not|unable|denied|"
    r"no such|not found|out of|\bwhat\(\)|\*\*\*)"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Death of a process: a kind of the table, and its last exception in one line."""

    kind: str
    exception: str


def side(kind: str) -> Side:
    """Return whose failure a kind is; a kind of a newer table is unknown here."""
    return KINDS.get(kind, Side.UNKNOWN)


def classify(
    exit_code: int, signal: int, last_lines: Sequence[str], traceback: Sequence[str] = ()
) -> Failure:
    """Judge one process that ended with an error, by the last lines of its stderr.

    ``traceback`` is the one that it died of, where that is known; other lines may follow it.
    """
    if exit_code - _SHELL in _OF_A_SHELL:
        signal = exit_code - _SHELL
    if signal == _SIGKILL:
        # Nothing that a killed process had written is why it died, but for want of memory. A shell
        # tells by code 137 that its program was killed; of what, only the program itself says.
        kinds = _MEMORY if exit_code == _SHELL + _SIGKILL else frozenset({"host_memory"})
        kind, text = _told(last_lines, kinds)
        return Failure(kind or "killed", text.strip() if kind == "device_memory" else "")
    died_of = last_chain(traceback)
    chain = died_of or last_chain(last_lines)
    exception = chain[-1] if chain else ""
    for told in reversed(chain):
        if kind := kind_of(told):
            aborted = kind == "collective" and _ABORTED.search(told)
            return Failure(_why_given_up(kind, last_lines) if aborted else kind, exception)
    if signal and not (died_of and signal in _CRASHES):
        kind = _spoken(last_lines, _SPOKEN) if signal in _CRASHES else "killed"
        return Failure(kind or "crash", exception)
    if exception:
        return Failure("crash" if _WORKER_GONE.search(exception) else "exception", exception)
    return _without_traceback(exit_code, last_lines)


def _without_traceback(exit_code: int, last_lines: Sequence[str]) -> Failure:
    last = last_said(last_lines)
    if exit_code in _USAGE:
        return Failure("usage", last)
    if _NO_MODULE.search(last):
        return Failure("import", last)
    return Failure(_spoken(last_lines, _SPOKEN_AT_EXIT) or ENDED_ITSELF, "")


def _spoken(lines: Sequence[str], kinds: frozenset[str]) -> str:
    """Return the kind that the newest telling line tells of, if it is one of these."""
    return _why_given_up(_told(lines, kinds)[0], lines)


def _why_given_up(kind: str, lines: Sequence[str]) -> str:
    """Return why a collective was given up, where lines before the newest ones tell it.

    The watchdog tells of the timeout first, and then where in torch it noticed that; so does gloo
    of data that does not fit.
    """
    if kind != "collective":
        return kind
    told = (_told(lines, frozenset({one}))[0] for one in (WAITED_IN_VAIN, MISMATCH))
    return next(filter(None, told), kind)


def _told(lines: Sequence[str], kinds: frozenset[str]) -> tuple[str, str]:
    found = ((kind_of(text), text) for text in _said(lines))
    return next((one for one in found if one[0] in kinds), ("", ""))


def last_error(exit_code: int, signal: int, kind: str, lines: Sequence[str]) -> str:
    """Return the last line that can be why a process ended; "": none can.

    A line that tells the kind does. Else what a signal from outside ended has not written why; a
    program that crashes says it like an error; one that exits by itself, in its own words.
    """
    kinds = _SPOKEN_AT_EXIT & {kind}
    if told := _behind_bar(_told(lines, kinds)[1]):
        return told
    if signal in _CRASHES:
        return next((text for text in _sentences(lines) if _OF_AN_ERROR.search(text)), "")
    return "" if signal else last_said(lines)


def last_said(lines: Sequence[str]) -> str:
    """Return the last words of a process that ended itself; of SystemExit, its text."""
    return next(_sentences(lines), "")


def is_progress(line: str) -> bool:
    """Return whether a line is a progress bar, and nothing stands behind it."""
    text = plain(line).strip()
    return bool(text) and not _behind_bar(text)


def _sentences(lines: Sequence[str]) -> Iterator[str]:
    """Yield what is said besides progress, the newest first."""
    texts = (_behind_bar(text) for text in _said(lines))
    return (text for text in texts if text and not _ORDINARY.search(text))


def _behind_bar(text: str) -> str:
    """Return a text without a progress bar before it."""
    behind = _BAR_END.sub("", text, count=1).strip()
    is_inner = behind != text.strip() and behind.endswith("]")  # of brackets within the bar's own
    return "" if is_inner or _BAR.search(behind) else behind


def _said(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines as a person reads them, the newest first."""
    return (text for line in reversed(lines) if not _AFTERWARDS.search(text := plain(line)))
