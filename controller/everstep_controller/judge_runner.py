"""Judge runner: shows the judges the fleet on a tick, and journals which verdicts changed."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from everstep_controller.api.sessions import Session, Sessions
from everstep_controller.core.model.node import FindingOwner, NodeRecord, NodeState
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.judging.evaluator import Evaluator, Verdict
from everstep_controller.judging.judge import Judge, Ruling
from everstep_controller.judging.view import FleetView, Values
from everstep_controller.runtime import Runtime
from everstep_controller.samples import SampleRing

logger = logging.getLogger(__name__)

_SECOND_NS = 1e9


class JudgeRunner:
    """Samples stay out of the core: what changed enters it, with the numbers that decided."""

    def __init__(
        self, runtime: Runtime, sessions: Sessions, samples: SampleRing, judges: Sequence[Judge]
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._samples = samples
        self._judges = judges
        self._evaluator = Evaluator(judges)
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> Mapping[str, str]:
        """Return the judges that raised the last time, and what; their verdicts are held."""
        return MappingProxyType(self._failures)

    async def run(self, interval_s: float) -> None:
        """Judge at intervals until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            self.judge_once()

    def judge_once(self) -> None:
        """Show all judges the fleet as it is now. While the controller is halted, all is held."""
        state = self._runtime.state
        if state.halted:
            return
        view = self._view(state)
        rulings = [ruling for judge in self._judges for ruling in self._ask(judge, view)]
        with_findings = [node for node in state.nodes.values() if node.findings]
        verdicts = {node.name: held for node in with_findings if (held := _verdicts(node))}
        for change in self._evaluator.evaluate(view, rulings, verdicts):
            # One that is lost is made again: the evaluator goes by what the core has.
            self._runtime.post(change, again=False)

    def _ask(self, judge: Judge, view: FleetView) -> Iterable[Ruling]:
        name = type(judge).__name__
        try:
            rulings = list(judge.judge(view))
        except Exception as error:  # One that fails must not stop the others.
            if name not in self._failures:
                logger.exception("%s failed", name)
                sentence = f"{name} failed, and what it found is held: {error!r}"
                self._runtime.tell(CONTROLLER, "JudgeFailed", sentence)
            self._failures[name] = repr(error)
            return ()
        self._failures.pop(name, None)
        return rulings

    def _view(self, state: State) -> FleetView:
        now_ns = self._runtime.now_ns()
        sessions = [one for one in self._sessions if _may_be_judged(state.nodes.get(one.node))]
        clocks = [one.clock.wall_offset(now_ns) for one in sessions]
        return FleetView(
            now_ns=now_ns,
            nodes=tuple(one.node for one in sessions),
            clock_uncertainty_s=_seconds(one.uncertainty_ns if one else None for one in clocks),
            wall_offset_s=_seconds(one.offset_ns if one else None for one in clocks),
            stream_age_s=_seconds(now_ns - one.opened_ns for one in sessions),
            sample_age_s=_seconds(self._sample_age_ns(one, now_ns) for one in sessions),
            samples=self._samples,
        )

    def _sample_age_ns(self, session: Session, now_ns: int) -> int | None:
        newest_ns = self._samples.newest_ns(session.node)
        if newest_ns is None or newest_ns < session.opened_ns:
            return None
        return now_ns - newest_ns


def _seconds(times_ns: Iterable[int | None]) -> Values:
    """Return times in seconds; NaN where one is not known."""
    return np.array([np.nan if ns is None else ns / _SECOND_NS for ns in times_ns])


def _may_be_judged(node: NodeRecord | None) -> bool:
    """Return whether what a node does or leaves undone says something about it now."""
    return (
        node is not None
        and not node.missed
        and not node.gone
        and node.state is not NodeState.MAINTENANCE
    )


def _verdicts(node: NodeRecord) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(held.finding, held.since_ns)
        for held in node.findings.values()
        if held.owner is FindingOwner.CONTROLLER
    )
