"""Background saving: one snapshot at a time in a thread beside training, awaited at exit."""

import atexit
import os
import threading
import weakref

from everstep.rank.agent_link import AgentLink
from everstep.saving.exchange import Outcome
from everstep.saving.step_saving import Saving


class Background:
    """Saving of one step in a thread, while the next one computes."""

    def __init__(self, link: AgentLink | None, exit_s: float) -> None:
        self._link = link
        self._exit_s = exit_s
        self._pid = os.getpid()
        self.saving: Saving | None = None
        _finish_at_exit(self)

    def begin(self, saving: Saving) -> bool:
        """Start; False when no thread can be had, and nothing was done then."""
        # A thread for each snapshot, 0.1 ms: nothing to shut down, nothing for a fork to inherit.
        # A daemon: the interpreter's own wait for threads has no bound.
        thread = threading.Thread(target=saving.run, name="everstep-snapshot", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self.saving = saving
        return True

    def finish(self) -> Outcome | None:
        """Return how the snapshot under way ended, once it has; None: there is none."""
        saving = self.saving
        if saving is None:
            return None
        saving.settle()
        saving.wait()
        self.saving = None
        return saving.outcome

    def finish_at_exit(self) -> None:
        """Wait for the last snapshot, but not for ever; and never for the parent's."""
        saving = self.saving
        if saving is None or os.getpid() != self._pid:
            return
        if self._link is not None:
            self._link.be_patient(self._exit_s)
        if not saving.wait(self._exit_s):
            saving.give_up()


def _finish_at_exit(background: Background) -> None:
    reference = weakref.ref(background)

    def finish() -> None:
        if (still := reference()) is not None:
            still.finish_at_exit()

    atexit.register(finish)
    weakref.finalize(background, atexit.unregister, finish).atexit = False
