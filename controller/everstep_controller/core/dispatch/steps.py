"""Order of decisions: the steps in which a marked node, and then a marked job, is decided about.

Each step decides from the state alone, after those above it, and changes nothing but what it names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from everstep_controller.core.hangs import response, stillness
from everstep_controller.core.jobs import (
    absence,
    ending,
    identity,
    membership,
    progress,
    remembered_ends,
)
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.nodes import (
    agent_identity,
    days,
    health,
    injections,
    isolation,
    judged,
    late_evidence,
    liveness,
    stream_flaps,
)
from everstep_controller.core.planned import swaps, user_end
from everstep_controller.core.recovery import blame, deadlines, pair_tests, planning, start
from everstep_controller.core.turn import Reconciliation

SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True, slots=True)
class Step(Generic[SubjectT]):
    """One step: what decides, why at this place, and what it may change."""

    # Module of the core.
    name: str
    decide: Callable[[Reconciliation, SubjectT], None]
    place: str
    # Values and fields: of the node or job itself ("health"), of another one ("nodes.health"), of
    # the state ("state.roll"); "jobs": which there are; "orders", "timers". "state" is its state of
    # life, since when and why. All may announce, and mark others.
    changes: tuple[str, ...] = ()
    # It is of a job that waits for the end of the job of its name; all others are of the rest.
    waiting: bool = False


# What may follow where a node goes to another state of its life, by the effects of its table: a
# check, a claim within the budgets, a release; and members that become doubtful, or are it no more.
_NODE_LIFE = (
    *("state", "health", "isolation", "state.isolations_ns", "state.isolations_in"),
    *("state.outage", "jobs.generation", "orders", "timers"),
)
# The same of a job.
_JOB_LIFE = (
    *("state", "generation", "recovery", "hang", "awaited", "ledger", "state.incidents"),
    *("orders", "timers"),
)
# A fault of a job is an incident, and stops its generation.
_JOBS_FAULT = (
    *("jobs.state", "jobs.generation", "jobs.recovery", "jobs.hang", "jobs.awaited"),
    *("jobs.ledger", "jobs.launchers", "state.incidents", "state.job_stops_ns"),
    *("orders", "timers"),
)

NODE_STEPS: tuple[Step[NodeRecord], ...] = (
    Step(
        "nodes/injections",
        injections.reconcile_node,
        "it goes by the news that the agent is back, which `nodes/health` takes",
        ("news", "injections", "orders"),
    ),
    Step(
        "nodes/agent_identity",
        agent_identity.reconcile_node,
        "who speaks for the node is settled before its silence is judged",
        ("identity", "state.refused_agents", "orders", "timers"),
    ),
    Step(
        "nodes/liveness",
        liveness.reconcile_node,
        "a node that is lost, or whose agent is away, is judged by nothing else",
        (
            *("news", "liveness", "nodes.liveness", "nodes.news"),
            *("state.findings", "state.mute_rounds", "state.roll", *_NODE_LIFE),
        ),
    ),
    Step(
        "nodes/stream_flaps",
        stream_flaps.reconcile_node,
        "its finding is judged with the others of the node",
        ("streams", "health", "news", "timers"),
    ),
    Step(
        "nodes/health",
        health.reconcile_node,
        "the verdict, once all findings are open that this event opens",
        ("news", "blame", "spare_check", *_NODE_LIFE),
    ),
    Step(
        "nodes/late_evidence",
        late_evidence.reconcile_node,
        "the findings stand of which some may have come late",
        ("liveness", "orders"),
    ),
    Step(
        "nodes/isolation",
        isolation.claim_for_schedulers,
        "the last claim of those by which jobs move",
        ("isolation",),
    ),
    Step(
        "nodes/judged",
        judged.reconcile_node,
        "all for which automation claims the node stands by now",
        ("isolation", "state.judged"),
    ),
    Step(
        "jobs/membership",
        membership.reconcile_node,
        "jobs leave a node that is lost or claimed by now",
        _JOBS_FAULT,
    ),
    Step(
        "recovery/blame",
        blame.reconcile_node,
        "a judgement may change by the faults that the jobs of the node have by now",
        ("blame", "nodes.blame", "jobs.recovery", "jobs.ending", "state.incidents"),
    ),
    Step(
        "recovery/pair_tests",
        pair_tests.reconcile_node,
        "an answer is judged after the verdict on the node that gave it",
        ("pair", "nodes.pair", "health", "news", "state.pair_wanted", "timers"),
    ),
    Step(
        "planned/swaps",
        swaps.reconcile_node,
        "a drained node is given back where no finding, nor a pair test, shows any more why",
        ("swap", "isolation"),
    ),
    Step(
        "nodes/days",
        days.reconcile_node,
        "state, claims and findings are what this event has made of them",
        ("days",),
    ),
)
JOB_STEPS: tuple[Step[JobRecord], ...] = (
    Step(
        "jobs/identity",
        identity.reconcile_job,
        "a job begins when the one before it has ended; nothing else is decided about it before",
        (
            *("after", "lineage", "generation", "jobs", "jobs.lineage", "nodes.jobs"),
            *("state.names", "state.forgotten_through", "state.incidents", "orders", "timers"),
        ),
        waiting=True,
    ),
    Step(
        "jobs/remembered_ends",
        remembered_ends.reconcile_job,
        "a job that has ended already is taken no further",
        ("ending", "launchers", "lineage", *_JOB_LIFE),
    ),
    Step(
        "recovery/start",
        start.reconcile_job,
        "which generation there is comes before what its ranks do",
        ("term", "launchers", "lineage", *_JOB_LIFE),
    ),
    Step(
        "jobs/progress",
        progress.reconcile_job,
        "what its ranks have done comes before what they have not",
        ("ending", "launchers", "lineage", "snapshots_skipped", *_JOB_LIFE),
    ),
    Step(
        "hangs/stillness",
        stillness.reconcile_job,
        "a step that was made is no stillness",
        ("news", *_JOB_LIFE),
    ),
    Step(
        "hangs/response",
        response.reconcile_job,
        "a verdict on a hang is of a job that stands still by now",
        ("nodes.blame", *_JOB_LIFE),
    ),
    Step(
        "jobs/absence",
        absence.reconcile_job,
        "an agent that is away explains only what no hang does",
        ("launchers", *_JOB_LIFE),
    ),
    Step(
        "recovery/deadlines",
        deadlines.reconcile_job,
        "nobody is pressed for an answer that has come, or that a stop makes needless",
        ("launchers", "overdue", "nodes.health", "nodes.news", *_JOB_LIFE),
    ),
    Step(
        "planned/user_end",
        user_end.reconcile_job,
        "what breaks comes before what people want",
        ("planned", "ending", *_JOB_LIFE),
    ),
    Step(
        "recovery/pair_tests",
        pair_tests.reconcile_job,
        "the nodes of a generation that has stopped are free until the next plan",
        ("generation", "ledger", "nodes.pair", "state.pair_wanted", "orders", "timers"),
    ),
    Step(
        "planned/swaps",
        swaps.reconcile_boundary,
        "a node that a test has shown to be slow is left by the next plan",
        (
            *("slow", "nodes.isolation", "nodes.swap", "nodes.pair"),
            *("state.pair_wanted", "state.isolations_ns", "state.isolations_in", "timers"),
        ),
    ),
    Step(
        "recovery/planning",
        planning.reconsider,
        "the next step of the job, by all that is known of its nodes",
        (
            *("launchers", "launchers_told", "ending", "lineage", "nodes.blame"),
            *("state.named_ranks", *_JOB_LIFE),
        ),
    ),
    Step(
        "jobs/ending",
        ending.reconcile_job,
        "a job that is to end needs no plan any more",
        ("ending", *_JOB_LIFE),
    ),
)


class Steps(NamedTuple):
    """What decides, in order; tests have some that compare the state before and after each step."""

    of_nodes: Sequence[Callable[[Reconciliation, NodeRecord], None]]
    of_waiting_jobs: Sequence[Callable[[Reconciliation, JobRecord], None]]
    of_jobs: Sequence[Callable[[Reconciliation, JobRecord], None]]


STEPS = Steps(
    of_nodes=tuple(step.decide for step in NODE_STEPS),
    of_waiting_jobs=tuple(step.decide for step in JOB_STEPS if step.waiting),
    of_jobs=tuple(step.decide for step in JOB_STEPS if not step.waiting),
)
