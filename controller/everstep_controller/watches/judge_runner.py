"""Judge runner: shows the judges the fleet on a tick, and journals which verdicts changed."""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from everstep_controller.api.fleet.sessions import Session, Sessions
from everstep_controller.core.events import VerdictChanged
from everstep_controller.core.jobs.lifecycle import ACTIVE, STEPPING
from everstep_controller.core.model.node import FindingOwner, NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.judging.evaluator import NO_NODE, Evaluator, Verdict
from everstep_controller.judging.gpu_samples import GpuSamples
from everstep_controller.judging.gpu_view import Work
from everstep_controller.judging.judge import DomainRuling, Judge, Ruling
from everstep_controller.judging.link_errors import LinkErrors
from everstep_controller.judging.view import FleetView
from everstep_controller.runtime.judge_failures import JudgeFailures
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.telemetry.samples import SampleRing

logger = logging.getLogger(__name__)

_SECOND_NS = 1e9
# So many nodes are read before the event loop does something else: a few milliseconds.
_AT_ONCE = 500
_Row = tuple[float, float, float, float]


class JudgeRunner:
    """Samples stay out of the core: what changed enters it, with the numbers that decided."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        samples: SampleRing,
        gpus: GpuSamples,
        links: LinkErrors,
        judges: Sequence[Judge],
        failures: JudgeFailures,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._samples = samples
        self._gpus = gpus
        self._links = links
        self._judges = judges
        self._evaluator = Evaluator(judges)
        self._failures = failures
        # Since when each generation is seen to step.
        self._stepping_ns: dict[tuple[str, int], int] = {}

    async def run(self, interval_s: float) -> None:
        """Judge at intervals until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.judge_once()

    async def judge_once(self) -> None:
        """Show all judges the fleet as it is now. While the controller is halted, all is held."""
        view = await self._view()
        gpus = self._gpus.copy()
        # In a thread: the GPUs of a large fleet take it tens of milliseconds, as does their judge.
        shown = await asyncio.to_thread(gpus.view, view.nodes, view.now_ns)
        view = replace(view, gpus=shown)
        if self._runtime.state.halted:
            return
        changes = self._evaluator.follow(view, open_verdicts(self._runtime.state))
        for judge in self._judges:
            changes += await self._ask(judge, view)
        for change in changes:
            # One that is lost is made again: the evaluator goes by what the core has.
            self._runtime.post(change, again=False)

    async def _ask(self, judge: Judge, view: FleetView) -> Sequence[VerdictChanged]:
        name, enter = type(judge).__name__, self._evaluator.enter
        try:
            rulings = await asyncio.to_thread(_rulings, judge, view)
            changes = [one for ruling in rulings for one in enter(view, ruling)]
        except Exception as error:  # One that fails must not stop the others.
            logger.exception("%s failed", name)
            self._failures.note_of_fleet(name, repr(error))
            return ()
        self._failures.clear_of_fleet(name)
        return changes

    async def _view(self) -> FleetView:
        nodes: list[str] = []
        rows: list[_Row] = []
        for session in self._sessions:
            if _may_be_judged(self._runtime.state.nodes.get(session.node)):
                nodes.append(session.node)
                rows.append(self._row(session))
            if len(nodes) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T / _SECOND_NS
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        known, works = state.nodes, works_of(state, self._stepping_ns, now_ns)
        return FleetView(
            now_ns=now_ns,
            nodes=tuple(nodes),
            clock_uncertainty_s=columns[0],
            wall_offset_s=columns[1],
            stream_age_s=columns[2],
            sample_age_s=columns[3],
            samples=self._samples,
            domains=tuple(known[name].spec.domain if name in known else "" for name in nodes),
            works=tuple(works.get(name) for name in nodes),
            links=self._links.of_nodes(nodes, now_ns),
        )

    def _row(self, session: Session) -> _Row:
        """Return a node's values in the order of the view's columns, in nanoseconds."""
        now_ns = self._runtime.now_ns()
        wall = session.clock.wall_offset(now_ns)
        uncertainty_ns = math.nan if wall is None else wall.uncertainty_ns
        offset_ns = math.nan if wall is None else wall.offset_ns
        newest_ns = self._samples.newest_ns(session.node)
        age_ns = math.nan
        if newest_ns is not None and newest_ns >= session.opened_ns:
            age_ns = now_ns - newest_ns
        return (uncertainty_ns, offset_ns, now_ns - session.opened_ns, age_ns)


def _may_be_judged(node: NodeRecord | None) -> bool:
    """Return whether what a node does or leaves undone says something about it now."""
    return (
        node is not None
        and not node.missed
        and not node.gone
        and node.state is not NodeState.MAINTENANCE
    )


def works_of(
    state: State, stepping_ns: dict[tuple[str, int], int], now_ns: int
) -> dict[str, Work | None]:
    """Return by node the one job that has ranks there and steps; None where several have ranks.

    ``stepping_ns`` keeps, by job and generation, since when it is seen to step.
    """
    active = [job for job in state.jobs.values() if job.state in ACTIVE]
    seen = {(job.id, job.generation.number): job.state in STEPPING for job in active}
    for key in [*stepping_ns]:
        if not seen.get(key):
            del stepping_ns[key]
    works: dict[str, Work | None] = {}
    for job in active:
        key = (job.id, job.generation.number)
        work = Work(job.id, stepping_ns.setdefault(key, now_ns)) if seen[key] else None
        for name in job.generation.members:
            works[name] = None if name in works else work
    return works


def _rulings(judge: Judge, view: FleetView) -> list[Ruling | DomainRuling]:
    return list(judge.judge(view))


def open_verdicts(state: State) -> dict[str, Sequence[Verdict]]:
    """Return what judges have found and is open, by node; that of domains under no node."""
    with_findings = [node for node in state.nodes.values() if node.health.findings]
    verdicts: dict[str, Sequence[Verdict]] = {
        node.name: held for node in with_findings if (held := _verdicts(node))
    }
    of_domains = [
        Verdict(held.finding, held.since_ns)
        for held in state.findings.values()
        if held.finding.component.startswith("domain/")
    ]
    return verdicts | ({NO_NODE: of_domains} if of_domains else {})


def _verdicts(node: NodeRecord) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(held.finding, held.since_ns)
        for held in node.health.findings.values()
        if held.owner is FindingOwner.CONTROLLER
    )
