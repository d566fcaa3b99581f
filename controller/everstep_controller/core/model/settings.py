"""Settings: the keys by which an operator tunes decisions, with a reason for each default."""

from collections.abc import Iterator
from dataclasses import dataclass

from everstep_common.judging.condition import name_problems
from everstep_common.judging.findings import Mode
from everstep_common.setting import Bounds, duration, setting

_NOT_NEGATIVE = Bounds(least=0)
_SHARE = Bounds(least=0, most=1)
_ORDER = tuple(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the core's decisions: the table ``[core]`` of the configuration file.

    Journaled, so that a replay decides the same. Durations are nanoseconds here, and seconds in the
    file: ``silence_ns`` is its key ``silence_s``.
    """

    mode: Mode = setting(
        Mode.ADVISE,
        help="How far automation may go: observe findings, advise what to do, or enforce it. A "
        "new installation should advise until its findings are trusted. Nodes that are lost are "
        "isolated in every mode: their jobs go on without them.",
    )
    observe: tuple[str, ...] = setting(
        (), help='Conditions ("XidFatal") that are only observed, whatever mode says.'
    )
    advise: tuple[str, ...] = setting((), help="Conditions on which the controller only advises.")
    enforce: tuple[str, ...] = setting((), help="Conditions on which the controller acts.")
    isolation_budget_nodes: int = setting(
        2,
        unit="nodes",
        help="Working nodes that automation may isolate, at least.",
        bounds=_NOT_NEGATIVE,
    )
    isolation_budget_ratio: float = setting(
        0.02,
        help="Share of the fleet that automation may isolate, where that is more nodes.",
        bounds=_SHARE,
    )
    isolations_per_hour_nodes: int = setting(
        4,
        unit="nodes",
        help="Working nodes that automation may isolate within an hour, at least; what is found "
        "beyond that is only told of. A fleet of 2,048 nodes had one fault in 3 h (Llama 3).",
        bounds=_NOT_NEGATIVE,
    )
    isolations_per_hour_ratio: float = setting(
        0.01,
        help="Share of the fleet for the same, where that is more nodes.",
        bounds=_SHARE,
    )
    domain_isolation_budget_nodes: int = setting(
        2,
        unit="nodes",
        help="Working nodes of one failure domain that automation may isolate, at least. A domain "
        "in a path (row-1/rack-7) counts for those above it, too. What most nodes of a rack have "
        "at once is seldom the nodes' fault.",
        bounds=_NOT_NEGATIVE,
    )
    domain_isolation_budget_ratio: float = setting(
        0.25,
        help="Share of a failure domain's nodes for the same, where that is more nodes.",
        bounds=_SHARE,
    )
    domain_isolations_per_hour_nodes: int = setting(
        4,
        unit="nodes",
        help="Working nodes of one failure domain that automation may isolate within an hour, at "
        "least: as many as of a fleet of up to 400 nodes.",
        bounds=_NOT_NEGATIVE,
    )
    domain_isolations_per_hour_ratio: float = setting(
        0.25,
        help="Share of a failure domain's nodes for the same, where that is more nodes.",
        bounds=_SHARE,
    )
    job_stops_per_hour: int = setting(
        4,
        help="How often automation may stop a job that still steps within an hour, to isolate one "
        "of its nodes, to let it grow or to have it leave a node whose agent is away. Each costs "
        "up to a minute. Jobs whose ranks died are always recovered.",
        bounds=_NOT_NEGATIVE,
    )
    silence_ns: int = duration(
        5.0,
        help="A node is lost when nothing of it, agent or kernel, has answered anybody for this "
        "long. A machine that is frozen for less than 3 s is not even asked about.",
        above=0,
    )
    confirm_timeout_ns: int = duration(
        1.5,
        help="How long an agent and the peers that were asked about it may take to answer: three "
        "pings and a connect in a second, and slack.",
        above=0,
    )
    agent_return_ns: int = duration(
        15.0,
        help="An agent whose node's kernel answers has this long to come back; then it is a "
        "finding. Long enough for a restart under systemd.",
    )
    loss_hold_ns: int = duration(
        60.0,
        help="A silent node that the network has called unreachable stays doubtful this long; and "
        "so does one of a fleet of up to four nodes of which fewer peers can tell than there "
        "should be. In a larger fleet no time alone makes a node lost.",
    )
    controller_domain: str = setting(
        "",
        help="Failure domain of the controller's machine, as agents name theirs. Only for a "
        "machine without an agent: of one with an agent, the agent's domain holds. Peers in it "
        "alone make no node lost, for a cut around it looks to them like the loss of all others.",
    )
    startup_grace_ns: int = duration(
        120.0,
        help="After its own start the controller waits this long for an agent that nobody tells "
        "of, before it takes its absence for silence. A start within that time of another one goes "
        "on with it, but for 15 s in which agents reconnect.",
    )
    recover_listen_ns: int = duration(
        30.0,
        help="How long 'everstep-controller recover' listens before it acts: agents reconnect "
        "within 10 s, and one that is missed loses what it alone knew.",
        above=0,
    )
    last_call_timeout_ns: int = duration(
        10.0,
        help="How long a job waits for its wanted nodes once it has its fewest: launchers of one "
        "start arrive within seconds.",
    )
    answer_timeout_ns: int = duration(
        60.0,
        help="How long a connected agent may leave an order about a job unanswered, besides "
        "stop_grace_s: it is asked again after half of it, and then counts as gone for the job, so "
        "that a spare takes its place. Agents stop and start processes within 10 s.",
        above=0,
    )
    holdings_timeout_ns: int = duration(
        120.0,
        help="How long a recovery waits until all nodes have told what they hold of the job; then "
        "it goes back to what the others hold. An agent that restarts hashes 1 TB in about that "
        "time.",
        above=0,
    )
    restore_timeout_ns: int = duration(
        1800.0,
        help="How long the ranks of a node may be behind those of other nodes in calling in or "
        "restoring their state, since the last node came further; then a spare takes its place, or "
        "people are told. 100 GB from a storage of 100 MB/s, and slack.",
        above=0,
    )
    warmup_timeout_ns: int = duration(
        3600.0,
        help="People are told of a job that has its state and makes no step for this long: "
        "compiling takes 20 minutes at worst. It is not stopped for that.",
        above=0,
    )
    stop_grace_ns: int = duration(
        0.0,
        help="How long processes may take after SIGTERM when a generation is stopped. A rank "
        "that waits in a collective for a dead peer ends only by SIGKILL, so by default "
        "it comes at once.",
    )
    check_timeout_ns: int = duration(
        180.0,
        help="A check of a node that is unanswered for this long is ordered again, and after the "
        "second time a finding. Agents give a check up after check_deadline_s, 60 s.",
        above=0,
    )
    recheck_ns: int = duration(
        30.0,
        help="A node that failed its check is checked again after this time, and after twice as "
        "long each further time.",
        above=0,
    )
    recheck_max_ns: int = duration(
        900.0,
        help="The longest time between two checks of a node that failed its last.",
        above=0,
    )
    probation_ns: int = duration(
        600.0, help="How long a repaired or returned node is the last choice for ranks."
    )
    probation_steps: int = setting(
        10,
        unit="steps",
        help="A job that crashes twice within this many steps of the state that it was "
        "restored from goes on from an older state: a bad state shows within a few steps.",
        bounds=_NOT_NEGATIVE,
    )
    evidence_window_ns: int = duration(
        60.0,
        help="Hardware findings of a node this long before or after ranks died there count as "
        "the cause: a driver that hangs is a finding only after a minute.",
    )
    evidence_max_age_ns: int = duration(
        600.0,
        help="What an agent has seen longer ago isolates no node, for it may be over: it is of the "
        "time of a controller, or an agent, that was away. It is shown, and acted on when it is "
        "seen again; an agent that connects says what is open then. LinkDown: 120 s at most. 0: "
        "evidence of any age.",
    )
    strike_window_ns: int = duration(
        86_400.0,
        help="After a second unexplained death of a rank on one node within this time the node"
        " is replaced and checked. By chance that is rare: Llama 3 saw one interruption "
        "in about 260 node-days.",
    )
    spare_check_interval_ns: int = duration(
        600.0,
        help="How often a node is checked while it waits as a spare, besides when it becomes "
        "one. One that fails takes no new ranks until it passes. A check reads every "
        "probe once, which costs little. 0: spares are not checked.",
    )
    final_save_timeout_ns: int = duration(
        120.0,
        help="How long the end of a job with storage waits until its last step is stored: 100 "
        "GB a node at 1 GB/s, and slack.",
    )
    memory_kept_ns: int = duration(
        1800.0,
        help="Set it to the agents' jobs.memory_kept_s. So long a new job waits for a lost "
        "node that has part of the state of the job before it, and a job without any "
        "launcher waits for one to come back.",
    )
    snapshot_every_min: int = setting(
        1,
        unit="steps",
        help="Smallest interval between snapshots of a job, in steps.",
        bounds=Bounds(above=0),
    )
    snapshot_every_max: int = setting(
        0,
        unit="steps",
        help="Largest interval between snapshots. 0: the one that costs least, sqrt(2 w M) of "
        "training (w: stall of a snapshot, M: mean time between the job's faults), "
        "or fewer, as the next two keys say.",
        bounds=_NOT_NEGATIVE,
    )
    snapshot_cost_ignored_ratio: float = setting(
        0.01,
        help="Snapshots may stall a job for this share of its training, whatever they save: every "
        "step is snapshotted while a snapshot stalls it for less than this share of a step, and "
        "one in five while it does for five times as much. 0: always use the formula.",
        bounds=_NOT_NEGATIVE,
    )
    snapshot_interval_max_ns: int = duration(
        60.0,
        help="Most training time between two snapshots, whatever they cost: it is what a fault"
        " repeats. 0: always use the formula.",
    )
    unsaved_max_ns: int = duration(
        60.0,
        help="A job that makes steps and takes snapshots, and none of them becomes recoverable for "
        "this long, is the finding StepsUnsaved: the agent of a node may be away. An agent that is "
        "restarted or upgraded is back sooner. 0: nothing is told.",
    )
    autonomous_restarts_max: int = setting(
        3,
        help="How often the agent of a node that runs a whole job alone may restart it in "
        "place while the controller is away. More restarts would hide a fault of the "
        "node; 0: such a job waits, as jobs on several nodes do.",
        bounds=_NOT_NEGATIVE,
    )
    planned_restart_timeout_ns: int = duration(
        300.0,
        help="How long a planned restart (drain, update, growth) waits for the chosen step to "
        "be recoverable, once the job is near it; then the newest recoverable step is "
        "used. A move of ranks whose agent is away is dropped instead. A few steps of a minute "
        "each, and slack.",
    )
    growth_delay_ns: int = duration(
        60.0,
        help="A job on fewer nodes than it wants grows when other nodes have waited this long,"
        " so that nodes that come back one after the other cost only one restart.",
    )
    growth_interval_min_ns: int = duration(
        600.0,
        help="Least time between two growths: each is a restart, of a minute at worst.",
    )
    maintenance_drain_lead_ns: int = duration(
        600.0,
        help="How long before a maintenance window jobs begin to leave its nodes, at least: twice "
        "planned_restart_timeout_s. More where planned restarts have taken longer.",
    )
    maintenance_stop_lead_ns: int = duration(
        120.0,
        help="A job that cannot go on elsewhere trains until this long before the window, and then "
        "stops after a step that can be restored: some steps, and their second copies.",
    )
    maintenance_duration_min_ns: int = duration(
        60.0,
        help="Shorter windows are refused.",
    )
    stall_timeout_ns: int = duration(
        120.0,
        help="A job that makes no step for this long, and for three times its longest recent "
        "step, is shown as stalled: a step of more than a minute is rare. 0: none is "
        "shown.",
    )
    stall_restart_timeout_ns: int = duration(
        0.0,
        help="A stalled job of which nobody knows who holds it back is stopped and recovered after "
        "this long without a step. By default (0) never, because an evaluation makes no steps "
        "either: set it longer than the longest one. torch itself ends a collective that hangs "
        "after 600 s. Where a rank is known to hold it back: hang_patience_s.",
    )
    hang_patience_ns: int = duration(
        120.0,
        help="A job that stands still is restarted after this long without a move of any rank, "
        "where the rank that holds it back might go on by itself, and after three times the "
        "longest stall that the job came out of; twice as long where it was restarted at the "
        "same step before. Who evaluates or saves for longer says so with run.pause. 0: never.",
    )
    restart_backoff_max_ns: int = duration(
        600.0,
        help="A job whose ranks die of what is outside of it (storage, a network, a signal that "
        "somebody sends) is restarted at once, then after 5 s, and after twice as long each time "
        "until it makes a new step, up to this long: a file server that is away for an hour costs "
        "ten minutes more at most. 0: at once each time.",
    )
    ended_job_retention_ns: int = duration(
        7 * 86_400.0,
        help="How long an ended job is listed.",
        above=0,
    )

    def mode_of(self, condition: str, most: Mode = Mode.ENFORCE) -> Mode:
        """Return how far automation may go for one condition, on a node that is in no group.

        What an operator set for the condition holds; else the fleet's mode, but no further than
        ``most``, which the detector was shipped with.
        """
        return self.listed_mode(condition) or min(self.mode, most, key=_ORDER.index)

    def listed_mode(self, condition: str) -> Mode | None:
        """Return the mode that an operator set for a condition; None where that is none."""
        lists = (
            (self.enforce, Mode.ENFORCE),
            (self.advise, Mode.ADVISE),
            (self.observe, Mode.OBSERVE),
        )
        return next((mode for conditions, mode in lists if condition in conditions), None)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with values that are within their bounds, but not together."""
        if 0 < self.snapshot_every_max < self.snapshot_every_min:
            yield "snapshot_every_max: must not be below snapshot_every_min"
        if self.stall_restart_timeout_ns and not self.stall_timeout_ns:
            yield "stall_restart_timeout_s: needs stall_timeout_s, which finds what stands still"
        for key in ("observe", "advise", "enforce"):
            yield from (f"{key}: {problem}" for problem in name_problems(getattr(self, key)))
        listed = (*self.observe, *self.advise, *self.enforce)
        for name in sorted({name for name in listed if listed.count(name) > 1}):
            yield f"observe: {name} is in more than one of observe, advise, enforce"
