"""Declared progress: step, phase, pause and own work of this rank, as its script says.

The launcher reads them in the rank's page; a pause is told to the agent as well, which may see no
page: the ranks of a container have none.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from everstep.rank.interpreter import everstep_rank_page as layout
from everstep.rank.interpreter.everstep_rank_page import NoPageError, Page
from everstep_common.clock import boot_ns
from everstep_common.compute_time import ComputeTime
from everstep_common.rank_messages import Paused

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
        self._waits = _Waits()
        self._own = ComputeTime()

    def complete_step(self, step: int, at_boot_ns: int) -> None:
        """The rank has completed a step. Never raises."""
        if (one := self._usable_page()) is not None:
            one.words[layout.STEP_AT] = at_boot_ns
            one.words[layout.STEP] = step + 1
            if (own_ns := self._waits.complete_step(at_boot_ns)) is not None:
                self._own = self._own.add_step(own_ns)
                one.words[layout.OWN] = self._own.packed

    def enter_phase(self, name: str) -> None:
        """The rank goes on to another part of its step. Never raises."""
        if (one := self._usable_page()) is None:
            return
        place = self._places.get(name)
        if place is None:
            place = self._place_of(one, name)
        one.words[layout.PHASE] = place
        one.words[layout.ENTRIES + place] += 1

    def name_role(self, name: str) -> None:
        """The rank computes this part of the model. Never raises."""
        if (one := self._usable_page()) is not None:
            end = layout.ROLE_NAME + layout.NAME_BYTES
            one.bytes[layout.ROLE_NAME : end] = layout.name_bytes(name)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for other ranks, within the block."""
        self._waits.begin(boot_ns())
        try:
            yield
        finally:
            self._waits.end(boot_ns())

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """Do what is no step, within the block."""
        name = (name or "unnamed")[:_NAME_MAX]
        self._pauses.append(name)
        self._waits.spoil()
        self._show_pause()
        try:
            yield
        finally:
            self._pauses.pop()
            self._waits.spoil()
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


class _Waits:
    """How long the rank has waited for others in the step that goes on."""

    def __init__(self) -> None:
        self._step_ns = self._since_ns = self._waited_ns = 0
        self._depth = 0
        self._waited = self._spoiled = False

    def begin(self, now_ns: int) -> None:
        if not self._depth:
            self._since_ns = now_ns
        self._depth += 1

    def end(self, now_ns: int) -> None:
        self._depth -= 1
        if not self._depth:
            self._waited_ns += now_ns - self._since_ns
            self._waited = True

    def spoil(self) -> None:
        """Something else than a step is done in it."""
        self._spoiled = True

    def complete_step(self, at_ns: int) -> int | None:
        """Return how long the rank worked itself in the step; None where that is not known."""
        own_ns = at_ns - self._step_ns - self._waited_ns
        # Without a wait it is not known which part of it was one.
        known = self._step_ns > 0 and self._waited and not self._spoiled and not self._depth
        self._step_ns, self._waited_ns = at_ns, 0
        self._waited = self._spoiled = False
        return own_ns if known and own_ns > 0 else None


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
