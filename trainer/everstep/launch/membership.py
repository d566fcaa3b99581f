"""Membership in a job: a launcher's request to take part, and its leave."""

import os
import signal
import time
from collections.abc import Callable, Mapping

from everstep.launch.command_line.grace import Grace, known_grace
from everstep.launch.command_line.options import LaunchOptions
from everstep.launch.generation import LocalGeneration
from everstep.launch.link import LaunchLink
from everstep.launch.processes.shutdown import is_shutting_down
from everstep_common.launcher_messages import Join
from everstep_common.reports import EndAsked, LauncherLeft
from everstep_common.version import TRAINER_PROTOCOL, VERSION

# A little more than the agent itself takes at most (jobs.storage_drain_timeout_s); a second signal
# ends it.
_STORAGE_WAIT_S = 330.0
# Of the grace, ranks are killed and words exchanged in so much, or in a quarter if that is less.
_RESERVE_S = 2.0
# Ranks that are killed at the end of it are gone by then: a tenth, or a second if that is less.
_SPARE_S = 1.0
# No step is waited for in less.
_ASK_MIN_S = 1.0
# Slurm sends a signal to each process of a step, and srun sends it to its tasks once more.
_REPEATED_S = 1.0
# How long ranks may take to end that no signal ends.
_OWN_S = 10.0


class LeaveRequest:
    """End of a launcher: asks for the last step, and waits for it to be saved and stored."""

    def __init__(
        self,
        options: LaunchOptions,
        link: LaunchLink,
        say: Callable[[str], None],
        monotonic: Callable[[], float],
        environ: Mapping[str, str] = os.environ,
        shuts_down: Callable[[], bool] = is_shutting_down,
    ) -> None:
        """``shuts_down`` returns whether the machine does."""
        self._options = options
        self._link = link
        self._say = say
        self._monotonic = monotonic
        self._environ = environ
        self._shuts_down = shuts_down
        # The machine goes down: the job goes on with others.
        self._goes_down = False
        self._grace = Grace(_OWN_S if options.grace_s is None else options.grace_s)
        # When the first signal came, and which it was, where the job is to end by it.
        self._at_s: float | None = None
        self.asked: signal.Signals | None = None
        # Until then a launcher that leaves waits for the agent to say that all is stored.
        self._stored_by = 0.0
        # The last words, and what a person should know of the last step: why it was not asked for,
        # and what is not known of it.
        self._words = self._unasked = self._unknown = ""

    def begin(self, number: signal.Signals) -> bool:
        """Note a signal; return whether it only repeats the one that came a moment ago."""
        if self._at_s is None:
            self._at_s = self._monotonic()
            of_machine = number == signal.SIGTERM and self._options.nodes_max > 1
            self._goes_down = of_machine and self._shuts_down()
            self._grace = known_grace(self._options.grace_s, self._environ, time.time())
            return False
        soon = self._monotonic() - self._at_s < _REPEATED_S
        return soon and number == signal.SIGTERM and "SLURM_JOB_ID" in self._environ

    def ask(self, number: signal.Signals) -> bool:
        """Ask that the last step be saved before the end; return whether there is time for that."""
        grace = self._grace
        if self.only_here(number):
            return False
        self._unasked = self._why_unasked()
        if self._unasked:
            return False
        within_ns = round((grace.seconds - self._reserve_s()) * 1e9)
        self._link.send(EndAsked(number.name, within_ns))
        self.asked = number
        by = f" ({grace.set_by})" if grace.set_by else ""
        self._say(
            f"{number.name}: the job ends within {grace.seconds:g} s{by}; if it makes snapshots, "
            "its last step is saved first; another signal ends it at once"
        )
        return True

    def _why_unasked(self) -> str:
        """Return why there is nobody to ask, or no time; "": there is."""
        if not self._link.connected:
            return "this node's agent is away, so nobody was asked to save its last step"
        grace = self._grace
        if grace.seconds < _ASK_MIN_S:
            return (
                f"{grace.seconds:g} s ({grace.set_by or '--grace'}) are too few to save a step in"
            )
        return ""

    def due_in_s(self, *, stopped: bool) -> float | None:
        """Return how long the controller's word is waited for; None: it is not.

        Where nobody kills the launcher, what is stored after its ranks have ended may take longer.
        """
        if self.asked is None or self._at_s is None:
            return None
        if stopped and not self._link.connected:
            return 0.0
        stores = stopped and self._options.keep.storage is not None and not self._grace.set_by
        wait_s = _STORAGE_WAIT_S if stores else self._grace.seconds - self._reserve_s() / 2
        return max(0.0, self._at_s + wait_s - self._monotonic())

    def ranks_s(self) -> float:
        """Return how long ranks may take to end now."""
        if self._at_s is None:
            return self._grace.seconds
        killed = self._grace.set_by not in ("", "--grace")
        spare_s = min(_SPARE_S, self._grace.seconds / 10) if killed else 0.0
        return max(0.0, self._at_s + self._grace.seconds - spare_s - self._monotonic())

    def _reserve_s(self) -> float:
        return min(_RESERVE_S, self._grace.seconds / 4)

    def only_here(self, number: signal.Signals) -> bool:
        """Return whether the job goes on without this node after such a signal."""
        return number in self._options.leaves_on or (self._goes_down and number == signal.SIGTERM)

    def by(
        self, number: signal.Signals, *, begun: bool, again: bool = False, spare: bool = False
    ) -> None:
        """Leave on a signal; ``again``: it came once more, and nothing is waited for.

        ``begun``: ranks have run here, so there may be a step that is to be stored. ``spare``: the
        job goes on without this node, and stores its steps when it ends.
        """
        if self.only_here(number):
            # Nothing is told: the agent sees this process end, and the job goes on without it.
            self._link.drop()
            why = (
                f"{number.name}, because the machine shuts down" if self._goes_down else number.name
            )
            self._words = f"this node left job {self._options.job} on {why}"
            return
        as_spare = ", as a spare of it" if spare else ""
        self._words = f"job {self._options.job}: left on {number.name}{as_spare}"
        if self.asked is not None:
            self._unknown = self._why_unknown(again=again)
        self._link.send(LauncherLeft(f"interrupted by its user ({number.name})", by_user=True))
        stores = begun and not spare and self._options.keep.storage is not None
        if stores and self.asked is None and self._link.connected:
            self._stored_by = self._monotonic() + _STORAGE_WAIT_S
            self._say("waiting for the newest step to be stored; Ctrl-C: do not wait")
            self._unknown = "nobody said that its newest step is stored"

    def _why_unknown(self, *, again: bool) -> str:
        """Return why a launcher that has asked for the last step leaves without having heard."""
        if again:
            why = "at once, by another signal"
        elif not self._link.connected:
            why = "this node's agent went away before it said so"
        else:
            waited_s = self._monotonic() - (self._at_s or 0.0)
            why = f"the controller did not say so within {waited_s:.0f} s"
        return f"whether its last step is saved is not known: {why}"

    def last_words(self) -> str:
        """Return what a launcher that left by a signal says last."""
        return "; ".join(filter(None, (self._words, self._unasked, self._unknown)))

    def for_ranks(self, number: signal.Signals | None) -> signal.Signals:
        """Return the signal that the ranks get first."""
        return number if number and number in self._options.ends_on else signal.SIGTERM

    def exit_code(self, *, succeeded: bool) -> int:
        """Return the exit code of a launcher whose job is over."""
        if succeeded:
            return 0
        return 1 if self.asked is None else 128 + self.asked

    def heard_end(self, told: str) -> None:
        """The controller says how the job ended, in words; nothing is waited for any more."""
        self._stored_by, self._unknown = 0.0, ""
        if self._words:
            self._words = told

    def wait_no_longer(self) -> None:
        """The user has had enough."""
        if self.left_s():
            self._unknown = "that its newest step is stored was not waited for"
        self._stored_by = 0.0

    def left_s(self) -> float:
        """Return how long there is to wait yet."""
        return max(0.0, self._stored_by - self._monotonic())


def join_message(
    options: LaunchOptions, token: str, generation: LocalGeneration, job_id: str
) -> Join:
    """Return the message, with what runs here now."""
    return Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=options.job,
        token=token,
        nodes_min=options.nodes_min,
        nodes_max=options.nodes_max,
        processes_per_node=options.processes_per_node,
        reform=options.reform,
        restarts_max=options.restarts_max,
        free_port=generation.free_port,
        running_generation=0 if generation.stopped else generation.number,
        storage=options.keep.storage,
        environment=options.keep.environment,
        snapshot_bytes=options.keep.memory_bytes,
        snapshot_every_min=options.keep.every_min,
        snapshot_every_max=options.keep.every_max,
        # Said once: what has begun here is not left again because the agent was away.
        fresh=options.keep.fresh and not generation.number,
        continues=options.keep.continues and not generation.number,
        storage_begun=options.keep.begun,
        job_id=job_id,
        replica_nodes=options.replica_nodes,
        program=options.program,
        queue=options.queue,
        account=options.account,
    )
