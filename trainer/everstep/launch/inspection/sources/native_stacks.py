"""Native stack: in whose code a sleeping main thread stands, by the libraries on its stack.

No debugger and no symbols: the words above the stack pointer that point into code are return
addresses, the nearest of them of the functions that wait. Only names of libraries leave.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

# What the innermost functions take of the stack; beyond it stands the interpreter.
_BYTES = 16 * 1024
_WORD_BYTES = 8
_MAPS_MAX = 8 * 1024 * 1024
_LIBRARIES_MAX = 6
# Through these everybody waits.
_OF_THE_SYSTEM = re.compile(r"(?:libc|libstdc\+\+|libc\+\+|libpthread|ld-linux|ld-musl)[.-]")
_NAME = re.compile(r"[\w.+-]{1,80}")


def libraries_on_stack(pid: int, syscall: str, proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Return the libraries that a main thread waits in, innermost first, without the C library's.

    ``syscall`` is what the kernel says of it (proc_pid_syscall(5)). Raises OSError and ValueError
    where the stack cannot be read, as while it runs.
    """
    pointer = int(syscall.split()[-2], 16)
    with (proc / str(pid) / "maps").open("rb") as file:
        code = _Code(file.read(_MAPS_MAX).decode(errors="replace"))
    with (proc / str(pid) / "mem").open("rb", buffering=0) as file:
        file.seek(pointer)
        stack = file.read(_BYTES)
    return nearest(stack, code.library)


class _Code:
    """Which library's code an address is in."""

    def __init__(self, maps: str) -> None:
        # proc_pid_maps(5): addresses, rights, offset, device, inode, path.
        lines = [words for line in maps.splitlines() if len(words := line.split(None, 5)) == 6]
        self._parts = sorted(
            (int(first, 16), int(last, 16), words[5].rpartition("/")[2].split(" ")[0])
            for words in lines
            if "x" in words[1]
            for first, _, last in [words[0].partition("-")]
        )
        self._starts = [first for first, _, _ in self._parts]

    def library(self, address: int) -> str:
        """Return the name of its file; "" where it is no code."""
        place = bisect_right(self._starts, address) - 1
        if place < 0 or address >= self._parts[place][1]:
            return ""
        return self._parts[place][2]


def nearest(stack: bytes, library: Callable[[int], str]) -> tuple[str, ...]:
    """Return the first libraries that words of a stack point into. Pure."""
    found: list[str] = []
    for start in range(0, len(stack) - _WORD_BYTES + 1, _WORD_BYTES):
        word = int.from_bytes(stack[start : start + _WORD_BYTES], sys.byteorder)
        name = library(word)
        known = not name or name in found or _OF_THE_SYSTEM.match(name)
        if not known and _NAME.fullmatch(name):
            found.append(name)
            if len(found) == _LIBRARIES_MAX:
                break
    return tuple(found)
