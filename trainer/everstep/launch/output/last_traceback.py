"""Last traceback in a process's output, whole, whatever is written after it. Pure.

A message has no end mark. What follows the line of the exception within moments is taken for its
message, until a line that is a library's; later lines show that the process lived through it.
"""

import re
from collections import deque

from everstep_common.failures.tracebacks import CHAINED, plain

# Together the 64 KiB of a traceback: deep recursions have thousands of frames, and some messages
# (of pydantic, of torch.compile) hundreds of lines.
_FRAMES_CHARACTERS_MAX = 32 * 1024
_MESSAGE_CHARACTERS_MAX = 32 * 1024
_LINE_CHARACTERS_MAX = 8 * 1024
# The interpreter writes a message at once; a busy machine may take a moment to pass it on.
_MESSAGE_NS = 2_000_000_000
# After as many other lines as the end of the output holds, the process has gone on.
_OTHERS_MAX = 40

_SIGNS = ("Traceback (most recent call last):", "Exception ", "Error in atexit")
# A progress bar may stand before it. "Original Traceback" is a data loader's, within a message.
_HEADER = re.compile(
    r"(?P<margin>[|+] )?(?<!Original )(?:Exception Group )?Traceback \(most recent call last\):$"
)
_MARGIN = re.compile(r"^(?:\[rank\d+\]:(?: |$))?(?: *[|+] ?)?")
# What the interpreter tells and does not die of.
_HARMLESS = re.compile(r"(?:Exception ignored |Error in atexit)")
_OF_A_THREAD = re.compile(r"Exception in thread ")
# Lines of libraries in C++ (glog, torch, NCCL, abort(3), faulthandler) and of Python's own end.
_NATIVE = re.compile(
    r"(?:\[rank\d+\]:)?\[?[IWEF]\d{4,8} \d\d:|terminate called |\s*what\(\): |\s*frame #\d+: |"
    r"Exception raised from |Fatal Python error|Aborted|Segmentation fault|\*\*\* |"
    r"\S+:\d+:\d+ \[\d+\] (?:[\w/.]+:\d+ )?NCCL |[^ ]*resource_tracker\.py:\d+: "
)


class LastTraceback:
    """Looks at the lines of a process's stderr, one by one."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._characters = 0
        self._message_characters = 0
        # Of an older one, while the newest has not come to its exception.
        self._before: tuple[str, ...] = ()
        self._before_ns: int | None = None
        self._began_ns: int | None = None
        self._in_frames = self._whole = self._chained = False
        # A traceback that comes in the next line, or is coming, and is not kept.
        self._skips = self._skipping = False
        self._message_until_ns = 0
        self._others = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """Return it, with what caused it; empty without one."""
        return tuple(self._lines) if self._whole or not self._before else self._before

    @property
    def began_ns(self) -> int | None:
        """Return when its head was written."""
        return self._began_ns if self._whole or not self._before else self._before_ns

    def take(self, line: str, now_ns: int) -> None:
        """Look at the next line."""
        if not (self._lines or self._skips or _is_sign(line[:600]) or _is_sign(line[-100:])):
            return
        text = line[:_LINE_CHARACTERS_MAX].rstrip()
        bare = _MARGIN.sub("", plain(text), count=1)
        found = _HEADER.search(text)
        skips, self._skips = self._skips, False
        if found and skips:
            self._skipping = True
        elif found:
            self._begin(found, now_ns)
        elif _NATIVE.match(text):
            self._message_until_ns = min(self._message_until_ns, now_ns)
        elif self._skipping:
            self._skipping = not bare or bare.startswith(" ")
        elif self._in_frames:
            self._frame(text, bare, now_ns)
        else:
            self._after(text, bare, now_ns)

    def _begin(self, header: "re.Match[str]", now_ns: int) -> None:
        if not (self._chained or (header["margin"] and self._lines)):
            if self._whole:
                self._before, self._before_ns = self.lines, self._began_ns
            self._lines.clear()
            self._characters, self._began_ns, self._whole = 0, now_ns, False
        self._skipping = self._chained = False
        self._in_frames, self._others = True, 0
        self._add(header[0])

    def _frame(self, text: str, bare: str, now_ns: int) -> None:
        self._add(text)
        if bare and not bare.startswith(" "):  # the exception
            self._in_frames, self._whole = False, True
            self._message_until_ns = now_ns + _MESSAGE_NS
            self._message_characters = 0

    def _after(self, text: str, bare: str, now_ns: int) -> None:
        if bare in CHAINED and self._lines:
            self._chained = True
            self._add(text)
        elif _HARMLESS.match(bare) or (_OF_A_THREAD.match(bare) and self._whole):
            self._skips = True
            self._message_until_ns = 0
        elif now_ns < self._message_until_ns:
            self._message_characters += len(text)
            if self._message_characters <= _MESSAGE_CHARACTERS_MAX:
                self._add(text, trim=False)
        elif bare:
            self._other()

    def _other(self) -> None:
        self._others += 1
        if self._others > _OTHERS_MAX:
            self._lines.clear()
            self._before, self._before_ns, self._began_ns = (), None, None
            self._whole = False

    def _add(self, text: str, *, trim: bool = True) -> None:
        """Add a line; of frames the oldest make room, for the last tell the most."""
        self._lines.append(text)
        self._characters += len(text)
        while trim and self._characters > _FRAMES_CHARACTERS_MAX and len(self._lines) > 2:
            head = self._lines.popleft()
            self._characters -= len(self._lines.popleft())
            self._lines.appendleft(head)


def _is_sign(text: str) -> bool:
    return any(sign in text for sign in _SIGNS)
