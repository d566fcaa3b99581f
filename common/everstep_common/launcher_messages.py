"""Launcher messages: between a job's launcher and the agent of its node.

Join → Joined | Refused | RefusedForNow, then Start / Stop / End / Hold / Notice at any time;
Preload both ways. Those of training processes are in `everstep_common.rank_messages`.
Times are CLOCK_BOOTTIME nanoseconds of the node; steps count from 0.
"""

from dataclasses import dataclass, field
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Items
from everstep_common.preload import Preload
from everstep_common.rank_messages import Refused, RefusedForNow
from everstep_common.reports import (
    EndAsked,
    GenerationFinished,
    GenerationStopped,
    JobRequest,
    LauncherLeft,
    RankExited,
    Standbys,
)
from everstep_common.reports.nodes import RankReportText
from everstep_common.storage_environment import environment_problem

# --- launcher to agent ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(JobRequest):
    """A launcher asks to take part in a job; sent again after a reconnect, with what still runs."""

    protocol: int
    version: q.Title
    job: q.JobName
    token: q.Token
    # Memory that each rank's state will need, to be refused before anything starts; 0: unknown.
    snapshot_bytes: q.SizeBytes = 0
    # The user's credentials for the bucket of the job's storage (AWS_…); never written anywhere.
    environment: dict[str, str] = field(default_factory=dict)
    # Whether the launcher, as its user, sees in the job's folder that something was begun there.
    storage_begun: bool = False

    def problems(self) -> list[str]:
        """Say what is wrong with the numbers together, and with the environment."""
        problem = environment_problem(self.environment)
        return [*JobRequest.problems(self), *([problem] if problem else [])]


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A running training process."""

    rank: q.Rank
    pid: q.Pid


@dataclass(frozen=True, slots=True)
class Started:
    """All local processes of the generation are running."""

    generation: q.Generation
    processes: Annotated[tuple[RankProcess, ...], Items(q.RANKS_OF_NODE_MAX)]
    at_boot_ns: q.BootNs


@dataclass(frozen=True, slots=True)
class StepSeen:
    """The output of a rank says that the job has completed a step."""

    generation: q.Generation
    step: q.ToldStep
    at_boot_ns: q.BootNs


# What a rank wrote is cut to lines of this length, and told in so many at once.
OUTPUT_LINE_MAX = 2000
OUTPUT_LINES_MAX = 1000


@dataclass(frozen=True, slots=True)
class OutputSeen:
    """The newest lines that a rank wrote, for who asks for them later."""

    generation: q.ToldGeneration
    rank: q.Rank
    lines: Annotated[tuple[q.OutputLine, ...], Items(OUTPUT_LINES_MAX)]


# This many reports fit one message with room.
INSPECTED_MAX = 8


@dataclass(frozen=True, slots=True)
class Inspected:
    """Answer to Inspect, in parts: what ranks do, as the reader of their user found it."""

    look: q.Count
    reports: Annotated[tuple[RankReportText, ...], Items(INSPECTED_MAX)]
    # Whether another part of it follows.
    more: bool
    # Why ranks are missing; "" where none is, and in all parts but the last.
    missing: q.Line = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksWatched:
    """How the ranks stand, as the launcher reads it; told after a change, and every 5 s."""

    generation: q.Generation
    at_boot_ns: q.BootNs
    # Since when no collective of any rank has moved, which is longer than usual; 0: it is not.
    still_since_ns: q.BootNs = 0
    usual_ns: q.DurationNs = 0
    # What a rank does that is no step; "" where none does.
    pause: q.Word = ""
    # Why collectives tell nothing here; "" where they do.
    blind: q.Line = ""
    # Phases and pauses in which ranks are; the ranks that run, and in which of them each is.
    phases: Annotated[tuple[q.Word, ...], Items(64)] = ()
    ranks: Annotated[tuple[q.Rank, ...], Items(q.RANKS_OF_NODE_MAX)] = ()
    rank_phases: Annotated[tuple[q.Count, ...], Items(q.RANKS_OF_NODE_MAX)] = ()
    # Compute time of each, as `compute_time` packs it; none where no rank tells it.
    own: Annotated[tuple[q.PackedComputeTime, ...], Items(q.RANKS_OF_NODE_MAX)] = ()
    # Roles as scripts told, and which is that of each rank; none where none did.
    roles: Annotated[tuple[q.Word, ...], Items(64)] = ()
    rank_roles: Annotated[tuple[q.Count, ...], Items(q.RANKS_OF_NODE_MAX)] = ()
    # That they stand still counts only where the job has made steps: little was learned here yet.
    young: bool = False
    # One more than the newest step that each has printed, 0 for none; empty where none printed any.
    printed: Annotated[tuple[q.ToldStep, ...], Items(q.RANKS_OF_NODE_MAX)] = ()


# --- agent to launcher ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The agent has passed the launcher on to the controller (or keeps it until it is back)."""

    node: str


@dataclass(frozen=True, slots=True)
class Identified:
    """Job id of the launcher's job; said again in each Join, so that a late one is told so."""

    job_id: q.JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the processes of a generation."""

    generation: q.Generation
    node_rank: q.Nodes
    node_count: q.Nodes
    first_rank: q.Rank
    processes: q.RanksOfNode
    world_size: q.Ranks
    master_address: q.Address
    master_port: q.Port
    restore_step: q.Step | None
    reason: q.Evidence
    # No process that was made ahead is used: code may have changed since.
    renew: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the processes of this generation and of older ones; answer with GenerationStopped."""

    generation: q.Generation
    grace_s: float
    reason: q.Evidence


@dataclass(frozen=True, slots=True)
class StopAfterLook(Stop):
    """The same, of a generation that ended because ranks gave up waiting: look at the others first.

    Of protocol 10.
    """


@dataclass(frozen=True, slots=True)
class End:
    """The job is over: the launcher exits, with 0 when it succeeded."""

    succeeded: bool
    reason: q.Evidence


@dataclass(frozen=True, slots=True)
class Inspect:
    """Look at what the ranks do at this moment; answer with Inspected."""

    look: q.Count


@dataclass(frozen=True, slots=True)
class InspectEnd(Inspect):
    """The same, of a generation that ended because ranks gave up waiting: what was seen then.

    Of protocol 10.
    """

    generation: q.Generation


@dataclass(frozen=True, slots=True)
class InspectPatiently(Inspect):
    """The same, for a person, who waits longer on a loaded machine.

    Of protocol 16.
    """


@dataclass(frozen=True, slots=True)
class InspectRecent(Inspect):
    """The same, of ranks that step: when they enqueued their newest collectives, and no more.

    Of protocol 12.
    """


@dataclass(frozen=True, slots=True)
class Settled:
    """All local ranks have completed a step: what would have disturbed their start may begin."""

    generation: q.Generation


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the terminal ("1 of 2 nodes have joined")."""

    text: q.Evidence


@dataclass(frozen=True, slots=True)
class Hold(Notice):
    """The same, to a launcher that waits; ``spare``: its job goes on without it.

    Of protocol 16.
    """

    spare: bool


# Reports to the controller are among these messages as they are: the agent passes them on.
FROM_LAUNCHER = (
    Join,
    Started,
    StepSeen,
    OutputSeen,
    Inspected,
    RanksWatched,
    RankExited,
    GenerationStopped,
    Standbys,
    Preload,
    GenerationFinished,
    EndAsked,
    LauncherLeft,
)
TO_LAUNCHER = (
    Joined,
    Refused,
    RefusedForNow,
    Identified,
    Start,
    Stop,
    StopAfterLook,
    End,
    Settled,
    Inspect,
    InspectEnd,
    InspectPatiently,
    InspectRecent,
    Preload,
    Notice,
    Hold,
)
