"""Standing watch: tells the controller at once when a job's ranks here stand still, or go on."""

import asyncio
import logging
from collections.abc import Callable

from everstep_agent.jobs.standing.stand_still import StandStill
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_common.launcher_messages import RanksWatched
from everstep_common.reports import RankColumns, RanksGoOn, RanksStandStill
from everstep_common.reports.rank_columns import pack_ranks
from everstep_proto.generated import fleet_pb2
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class StandingWatch:
    """Watch of one job's newest generation on this node. Event loop only."""

    def __init__(
        self,
        record: Callable[[fleet_pb2.Record], None],
        boot_ns: Callable[[], int],
        active: Callable[[], bool],
    ) -> None:
        """``record`` has it journaled; ``active`` tells whether ranks of the job run here."""
        self._record = record
        self._boot_ns = boot_ns
        self._active = active
        self._judge = StandStill()
        self._plan: Plan = NO_PLAN
        self._timer: asyncio.TimerHandle | None = None
        self._still = False

    def begin(self, plan: Plan, *, unsure: bool = False) -> None:
        """Another generation begins; ``unsure``: the agent did not see its beginning."""
        self.close()
        self._plan, self._still = plan, unsure
        self._judge.begin(plan.generation, plan.ranks, unsure=unsure)
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._look)

    def add_step(self, rank: int, step: int, at_boot_ns: int) -> None:
        """A rank completed a step."""
        self._judge.add_step(rank, step, at_boot_ns)
        self._maybe_goes_on()

    def add_seen_step(self, step: int, at_boot_ns: int) -> None:
        """The output of some rank says that the job has completed a step."""
        for rank in self._plan.ranks:
            self._judge.add_step(rank, step, at_boot_ns)
        self._maybe_goes_on()

    def add_pause(self, rank: int, name: str) -> None:
        """A rank does what is no step; "": it goes on."""
        self._judge.add_pause(rank, name)
        self._maybe_goes_on()

    def end_pause(self, rank: int) -> None:
        """The process of a rank is gone."""
        self._judge.end_pause(rank)

    def add_watched(self, watched: RanksWatched) -> None:
        """The launcher told how its ranks stand."""
        self._judge.add_watched(watched, self._boot_ns())
        self.tell_standing()

    def end(self, generation: int) -> None:
        """Ranks of a generation end: from now on nothing is told of it."""
        if generation >= self._plan.generation:
            self._judge.end()
            self.close()

    def close(self) -> None:
        """Judge no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def columns(self) -> RankColumns | None:
        """Return how far the ranks are that run here; None where none does."""
        rows = tuple(self._judge.progress(self._boot_ns())) if self._active() else ()
        if not rows or not self._plan.job_id:
            return None
        return pack_ranks(self._plan.job_id, self._plan.generation, rows)

    def _look(self) -> None:
        self._timer = None
        if not self._active():
            return
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._look)
        self.tell_standing()

    def _maybe_goes_on(self) -> None:
        """A step comes often: only one that ends a stand is judged before the next second."""
        if self._still:
            self.tell_standing()

    def tell_standing(self) -> None:
        """Tell the controller what it does not know yet."""
        told: RanksStandStill | RanksGoOn | None = self._judge.judge(self._boot_ns())
        if told is not None and self._active():
            self._still = isinstance(told, RanksStandStill)
            if (
                isinstance(told, RanksStandStill)
                and told.young
                and told.blind
                and told.step is None
            ):
                words = "job %s: nothing here tells whether its ranks move: %s"
                logger.info(words, self._plan.job, told.blind)
            elif isinstance(told, RanksStandStill):
                logger.info(
                    "job %s: its ranks stand still, for longer than %.1f s%s",
                    self._plan.job,
                    told.usual_ns / 1e9,
                    f" ({told.blind})" if told.blind else "",
                )
            else:
                logger.info("job %s: its ranks go on", self._plan.job)
            self._record(record_of(told, self._plan.job_id or self._plan.job))
