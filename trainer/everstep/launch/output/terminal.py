"""Terminal of a launcher: shows the ranks' output line by line, and its own messages.

A reader that stops reading (Ctrl-S, a stuck pipe) or goes away (a lost connection) stops nothing:
what it does not take is kept in memory, then in a file, and it is told where.
"""

import os
import selectors
from pathlib import Path

from everstep.launch.output.output_queue import OutputQueue
from everstep.launch.output.overflow import Overflow
from everstep.launch.output.sink import NoSink, Sink, is_gone, open_sink
from everstep_common.failures.tracebacks import uncoloured
from everstep_common.printable import printable

# At the end a reader that takes nothing for so long gets the rest in the file.
_END_PATIENCE_S = 5.0
# ECMA-48, "erase in line": what stands from the cursor on.
_ERASE = b"\x1b[K"


class Terminal:
    """Standard output and error of the launcher."""

    def __init__(
        self, out: Sink | None = None, error: Sink | None = None, folder: Path | None = None
    ) -> None:
        """``folder`` is where output is kept that nobody reads."""
        self._overflow = Overflow(folder, os.getpid())
        self._out = OutputQueue(out or open_sink(1), self._overflow)
        self._error = OutputQueue(error or open_sink(2), self._overflow)
        self._was_terminal = {
            queue: os.isatty(queue.sink.fileno()) for queue in (self._out, self._error)
        }
        # The last line there is a progress bar, at the beginning of which the cursor stands.
        self._at_bar = False
        self._selector: selectors.BaseSelector | None = None
        self._followed: set[OutputQueue] = set()
        # Queues whose overflow has been told of.
        self._told: set[OutputQueue] = set()
        self._said: set[str] = set()

    def keep_in(self, folder: Path | None) -> None:
        """Name the folder of what nobody reads, before there is any."""
        if folder is not None and not self._overflow.path:
            self._overflow = self._out.overflow = self._error.overflow = Overflow(
                folder, os.getpid()
            )

    def follow(self, selector: selectors.BaseSelector) -> None:
        """From now on, write what waits when this selector says that it can be written."""
        self._selector = selector
        for queue in (self._out, self._error):
            self._watch(queue)

    def say(self, sentence: str) -> None:
        """Show a sentence of the launcher itself; what others have put in it steers no terminal."""
        text = printable(uncoloured(sentence).expandtabs())
        self.line(f"everstep: {text}".encode(), to_error=True)

    def say_once(self, sentence: str) -> None:
        """Show a sentence that several may have to say, the first time."""
        if sentence not in self._said:
            self._said.add(sentence)
            self.say(sentence)

    def line(self, line: bytes, end: bytes = b"\n", *, to_error: bool) -> None:
        """Show a line; on a terminal, in the place of a progress bar, and not over it."""
        queue = self._error if to_error else self._out
        if self._was_terminal[queue]:
            line = _ERASE + line if self._at_bar else line
            self._at_bar = end == b"\r"
        queue.put(line + end)
        self._watch(queue)

    def hung_up(self) -> bool:
        """Return whether it was a terminal, and its other end is gone (a lost connection)."""
        return any(self._was_terminal[q] and is_gone(q.sink.fileno()) for q in self._was_terminal)

    def finish(self, *, succeeded: bool = False) -> None:
        """Wait for readers that still read, and keep what the others have not taken.

        What had not been read of a job that ended well, and is read on, is removed.
        """
        read = True
        for queue in (self._out, self._error):
            while queue.waiting and queue.sink.writable(_END_PATIENCE_S):
                self._advance(queue)
            read = read and not queue.waiting and not queue.overflowing
            queue.give_up()
            self._unfollow(queue)
        if not self._overflow.path or isinstance(self._error.sink, NoSink):
            return
        if read and succeeded:
            self._overflow.remove()
            self._last_word(f"everstep: {self._overflow.path} is removed, for all went well\n")
        else:
            self._last_word(f"everstep: output that was not read is in {self._overflow.place}\n")

    def _last_word(self, sentence: str) -> None:
        try:
            self._error.sink.write(sentence.encode())
        except (OSError, ValueError):
            return

    def _watch(self, queue: OutputQueue) -> None:
        """Wait for the reader, and tell the other one, as far as there is need."""
        if queue.waiting and self._selector is not None and queue not in self._followed:
            self._selector.register(
                queue.sink.fileno(), selectors.EVENT_WRITE, lambda: self._advance(queue)
            )
            self._followed.add(queue)
        if queue.overflowing and queue not in self._told:
            self._told.add(queue)
            self._tell_other(queue)

    def _tell_other(self, queue: OutputQueue) -> None:
        name, other = ("output", self._error) if queue is self._out else ("error", self._out)
        why = "cannot be written" if queue.gone else "is not read"
        if not other.overflowing and other.sink.fileno() >= 0:
            other.put(
                f"everstep: standard {name} {why}: what comes goes to"
                f" {self._overflow.path or 'nowhere, for no disk takes it'}\n".encode()
            )
            self._watch(other)

    def _advance(self, queue: OutputQueue) -> None:
        unseen = queue.advance()
        if unseen:
            self._told.discard(queue)
            queue.put(
                f"everstep: {unseen} bytes were not read here; they are in"
                f" {self._overflow.place}\n".encode()
            )
        if not queue.waiting:
            self._unfollow(queue)
        self._watch(queue)

    def _unfollow(self, queue: OutputQueue) -> None:
        if queue in self._followed and self._selector is not None:
            self._selector.unregister(queue.sink.fileno())
            self._followed.discard(queue)
