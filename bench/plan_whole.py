"""Recovery plan benchmark: a job of 2,048 nodes x 8 ranks, from the judged fault to the orders.

Core, catalogue and what the shell does with their words (the journal's text, the messages) are
driven as the daemon drives them, without sockets and disk. Each repeat loses another node.
"""

import cProfile
import pstats
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from scale_fleet import JOB, RANKS_PER_NODE, Bench, Recorder, form, joined
from table import Row, row

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.api.fleet import to_agent
from everstep_controller.core import events
from everstep_controller.core.actions import Action, ChooseRecoveryStep, StartGeneration
from everstep_controller.core.events import RecoveryStepChosen
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.vault.catalogue import News
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_controller.core.vault.recovery_step import group_sources
from everstep_controller.core.vault.replication import replica_targets
from everstep_controller.journal.codec import encode, encode_actions
from everstep_controller.main import collect_garbage_seldom
from everstep_controller.runtime.vault_service import VaultService

# One spare a rack of 32 nodes, and so many racks that 2,048 nodes take part.
_RACK, _NODES, _MEMBERS = 32, 2114, 2048
_STEPS_KEPT = 3
_STOPS = ("fault judged, stops ordered", "stops and settled copies of all but the last")
PLAN = (
    "plan: members and generation",
    "plan: the step, of the catalogue",
    "plan: StartGeneration for all",
)
_SHELL = ("journal's text of the plan", "messages of the plan")


@dataclass(slots=True)
class Whole:
    """A job with spares and a full catalogue, and what each stage of its recoveries took, in ms."""

    bench: Bench
    port: Recorder = field(default_factory=Recorder)
    spent: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    profile: cProfile.Profile = field(default_factory=cProfile.Profile)
    profiled: bool = False
    held: dict[str, dict[bytes, Copy]] = field(default_factory=dict)
    service: VaultService = field(init=False)

    def __post_init__(self) -> None:
        self.service = VaultService(lambda: self.bench.core.state, self.port)

    @property
    def job(self) -> JobRecord:
        """Return the job."""
        return self.bench.core.state.newest(JOB)

    def take(self, stage: str, event: events.Event) -> list[Action]:
        """Hand an event to the core, as a part of a stage."""
        self.bench.now_ns += 1000
        found: list[Action] = []
        self.part(stage, lambda: found.extend(self.bench.core.handle(event, self.bench.now_ns)))
        return found

    def begin(self, stage: str) -> None:
        """Count anew."""
        self.spent[stage].append(0.0)

    def part(self, stage: str, work: Callable[[], object]) -> None:
        """Do a part of a stage."""
        if self.profiled:
            self.profile.enable()
        began = time.process_time()
        work()
        self.spent[stage][-1] += (time.process_time() - began) * 1e3
        self.profile.disable()


def formed(nodes: int = _NODES, count: int = _MEMBERS) -> Whole:
    """Return a job that runs, with spares that wait."""
    names = [f"n{number}" for number in range(nodes)]
    members = [name for index, name in enumerate(names) if index % _RACK != _RACK - 1]
    whole = Whole(Bench(names, members[:count]))
    form(whole.bench)
    for name in names[_RACK - 1 :: _RACK]:
        whole.bench.take(joined(whole.bench.origin(name), count))
    return whole


def run(whole: Whole) -> None:
    """Have the current generation run, with three replicated steps in the catalogue."""
    bench, job = whole.bench, whole.job
    for phase in Phase:
        for name in job.generation.members:
            origin = bench.origin(name)
            bench.take(
                events.Reported(
                    origin, bench.now_ns, reports.PhaseReached(job.generation.number, phase), JOB
                )
            )
    whole.service.job_changed(JOB)
    domains = {name: node.spec.domain for name, node in bench.core.state.nodes.items()}
    homes = {
        keeper: home for home, keeper in replica_targets(job.generation.members, domains).items()
    }
    steps = range((job.lineage.last_step or 0) + 1, (job.lineage.last_step or 0) + 1 + _STEPS_KEPT)
    rank_of = {name: index * RANKS_PER_NODE for index, name in enumerate(job.generation.members)}
    for name in job.generation.members:
        held = _held(job, name, (rank_of[name], rank_of[homes[name]]), steps)
        whole.held[name] = {repr(copy).encode(): copy for copy in held}
        whole.service.report(JOB, name, NodeHoldings(whole.held[name], 0))
    whole.port.run_waiting()
    for event in whole.port.posted():
        bench.take(event)
    bench.take(bench.step_of(steps[-1], job.generation.number))


def _held(
    job: JobRecord, node: str, first_ranks: tuple[int, int], steps: Sequence[int]
) -> Iterator[Copy]:
    """Yield what a node holds: its own ranks, and those of the node that it keeps replicas of."""
    for replica, first in enumerate(first_ranks):
        for rank in range(first, first + RANKS_PER_NODE):
            for step in steps:
                part = f"{rank:032x}"
                yield Copy(
                    node, job.generation.number, rank, step, bool(replica), part, 1 << 30, part
                )


def lose(whole: Whole, name: str) -> list[StartGeneration]:
    """Judge a node lost and have the others stop; time everything until the orders are out."""
    bench, job = whole.bench, whole.job
    generation = job.generation.number
    bench.take(events.NodeDisconnected(name))
    asked = bench.core.state.nodes[name].liveness.confirmation
    for peer in asked.asked if asked is not None else ():
        bench.take(events.PeerJudged(peer, name, asked.id if asked else "", udp=False))
    if bench.core.state.roll is not None:
        bench.take(events.RollCalled(bench.core.state.roll.id, len(bench.nodes) - 1))
    bench.now_ns += bench.core.state.settings.silence_ns
    judged, stopped = _STOPS
    whole.begin(judged)
    whole.take(judged, events.TimerDue(f"silence/{name}"))
    whole.part(judged, lambda: whole.service.forget_node(name))
    stopping = [member for member in job.generation.members if member != name]
    random.Random(generation).shuffle(stopping)
    *early, last = stopping
    whole.begin(stopped)
    for member in early:
        whole.take(stopped, _stopped(bench, member, generation))
        _settled(whole, member, generation)
    _settled(whole, last, generation)
    return _plan(whole, _stopped(bench, last, generation))


def _settled(whole: Whole, member: str, generation: int) -> None:
    report = NodeHoldings(whole.held[member], generation, news=News((), ()))
    whole.part(_STOPS[1], lambda: whole.service.report(JOB, member, report))


def _stopped(
    bench: Bench, member: str, generation: int
) -> events.Reported[reports.GenerationStopped]:
    return events.Reported(
        bench.origin(member), bench.now_ns, reports.GenerationStopped(generation, 29500), JOB
    )


def _plan(whole: Whole, last: events.Reported[reports.GenerationStopped]) -> list[StartGeneration]:
    members, choice, start = PLAN
    for stage in (*PLAN, *_SHELL):
        whole.begin(stage)
    asked = whole.take(members, last)
    question = next(one for one in asked if isinstance(one, ChooseRecoveryStep))
    whole.part(choice, lambda: whole.service.choose(question))
    chosen = next(one for one in whole.port.posted() if isinstance(one, RecoveryStepChosen))
    ordered = whole.take(start, chosen)
    whole.part(_SHELL[0], lambda: (encode(chosen), encode_actions(asked), encode_actions(ordered)))
    starts = [order for order in ordered if isinstance(order, StartGeneration)]
    whole.part(_SHELL[1], lambda: _messages(whole.job, starts))
    return starts


def _messages(job: JobRecord, starts: Sequence[StartGeneration]) -> list[bytes]:
    told = group_sources(job)
    return [
        to_agent.order(
            replace(order, transfer_key=b"key", sources=told.of(order.node)), 1
        ).SerializeToString()
        for order in starts
    ]


def whole_rows(repeats: int, *, profiled: bool) -> Iterator[Row]:
    """Yield what the recoveries cost, and print where the time went if asked to."""
    collect_garbage_seldom()  # as the daemon does
    whole = formed()
    whole.profiled = profiled
    for repeat in range(repeats):
        run(whole)
        lose(whole, whole.job.generation.members[_RACK * (2 * repeat + 1)])
    yield from _rows(whole)
    if profiled:
        pstats.Stats(whole.profile).sort_stats("cumulative").print_stats(40)


def _rows(whole: Whole) -> Iterator[Row]:
    for stage, spent in whole.spent.items():
        yield row(f"{_MEMBERS} x {RANKS_PER_NODE}: {stage}", spent, "ms")
    plans = [sum(parts) for parts in zip(*(whole.spent[stage] for stage in PLAN), strict=True)]
    yield row("the whole plan", plans, "ms")
    everything = [sum(parts) for parts in zip(*whole.spent.values(), strict=True)]
    yield row("from the judged fault to the last message", everything, "ms")
