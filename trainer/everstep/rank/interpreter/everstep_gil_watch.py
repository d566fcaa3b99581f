"""GIL watch: a thread of a rank that notes twice a second that the rank's Python runs.

It needs the GIL for that, so a rank in which some code keeps the GIL goes silent, and the kernel
shows that this thread waits. For ranks without torch's recorder; where the frontier is watched,
that tells the same. Run in the rank by its own interpreter, from 3.8 on, with the standard library
only.
"""

import _thread
import os
import time

if __package__:
    from everstep.rank.interpreter import everstep_rank_page as page_of
else:  # in a rank, whose interpreter need not have everstep
    import everstep_rank_page as page_of  # type: ignore[import-not-found, no-redef]

_INTERVAL_S = 0.5


class GilWatch:
    """The thread's work: a word in the rank's page that it has had the GIL."""

    def __init__(self, page: page_of.Page) -> None:
        self._page = page

    def begin(self) -> None:
        """Tell which thread watches: the caller's."""
        self._page.words[page_of.GIL_THREAD] = _thread.get_native_id()

    def note(self, now_ns: int) -> bool:
        """Note that Python runs; return whether that is to be noted again.

        Where the rank's frontier is watched it is not: the watch of that needs the GIL as well.
        """
        words = self._page.words
        words[page_of.GIL_AT] = now_ns
        if words[page_of.WATCH_PID] != self._page.pid or not words[page_of.WATCH_THREAD]:
            return True
        words[page_of.GIL_THREAD] = 0
        return False


def start() -> None:
    """Watch this process for as long as it lives. Raises NoPageError, and what threads raise."""
    watch = GilWatch(page_of.Page(os.environ, page_of.GIL_PID))
    # Not of `threading`, which the script may not have imported and would wait for at its end.
    _thread.start_new_thread(_run, (watch,))


def _run(watch: GilWatch) -> None:
    watch.begin()
    while watch.note(time.clock_gettime_ns(time.CLOCK_BOOTTIME)):
        time.sleep(_INTERVAL_S)
