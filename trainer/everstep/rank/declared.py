"""Declared progress: step, phase and pause of this rank, as its script says, for who judges a hang.

The launcher reads them in the rank's page; a pause is told to the agent as well, which may see no
page: the ranks of a container have none.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from everstep.rank.interpreter import everstep_rank_page as layout
from everstep.rank.interpreter.everstep_rank_page import NoPageError, Page
from everstep_common.clock import boot_ns
from everstep_common.trainer_messages import Paused

# A name is cut to this length.
_NAME_MAX = 40
# The last place is for all phases beyond it.
_OTHER = layout.PHASES - 1


class DeclaredProgress:
    """What one process declares; a forked child of it declares nothing."""

    def __init__(self, page: Page | None, tell: Callable[[object], object]) -> None:
        """``page`` is what the launcher reads, if it does; ``tell`` sends to the agent."""
        self._tell = tell
        self._page = page
        self._pid = os.getpid()
        self._places = {"": 0}
        self._pauses: list[str] = []

    def complete_step(self, step: int, at_boot_ns: int) -> None:
        """The rank has completed a step. Never raises."""
        if (one := self._usable_page()) is not None:
            one.words[layout.STEP_AT] = at_boot_ns
            one.words[layout.STEP] = step + 1

    def enter_phase(self, name: str) -> None:
        """The rank goes on to another part of its step. Never raises."""
        if (one := self._usable_page()) is None:
            return
        place = self._places.get(name)
        if place is None:
            place = self._place_of(one, name)
        one.words[layout.PHASE] = place
        one.words[layout.ENTRIES + place] += 1

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """Do what is no step, within the block."""
        name = (name or "unnamed")[:_NAME_MAX]
        self._pauses.append(name)
        self._show_pause()
        try:
            yield
        finally:
            self._pauses.pop()
            self._show_pause()

    def _show_pause(self) -> None:
        """Show the innermost pause, or that there is none any more."""
        if os.getpid() != self._pid:
            return
        name = self._pauses[-1] if self._pauses else ""
        if self._page is not None:
            end = layout.PAUSE_NAME + layout.NAME_BYTES
            self._page.bytes[layout.PAUSE_NAME : end] = layout.name_bytes(name)
            self._page.words[layout.PAUSES] = len(self._pauses)
        self._tell(Paused(name, boot_ns()))

    def _place_of(self, one: Page, name: str) -> int:
        place = min(len(self._places), _OTHER)
        if place < _OTHER:
            self._places[name] = place
        begin = layout.NAMES + place * layout.NAME_BYTES
        one.bytes[begin : begin + layout.NAME_BYTES] = layout.name_bytes(name)
        return place

    def _usable_page(self) -> Page | None:
        return self._page if self._page is not None and self._page.usable else None


class _Mapped:
    """The page of this process, which has one for as long as it lives."""

    def __init__(self) -> None:
        self._page: Page | None = None

    def page(self, environ: Mapping[str, str]) -> Page | None:
        if self._page is None or not self._page.usable:
            try:
                self._page = Page(environ, layout.SDK_PID)
            except NoPageError:
                self._page = None
        return self._page


# Two runs of one process write to the one page that its launcher reads.
_mapped = _Mapped()


def page_of_process(environ: Mapping[str, str]) -> Page | None:
    """Return the page of this process; None where no launcher reads one."""
    return _mapped.page(environ)
