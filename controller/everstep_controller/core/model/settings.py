"""Settings: what an operator configured of the core, with units and the reason for each default."""

from dataclasses import dataclass

from everstep_common.judging.findings import Mode

_ORDER = tuple(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the core's decisions; journaled, so that a replay decides the same."""

    mode: Mode = Mode.ADVISE
    # Rollout mode of single conditions ("XidFatal"), where it differs from ``mode``.
    condition_modes: tuple[tuple[str, Mode], ...] = ()
    # Budget of working nodes that automation may isolate: the larger of a number and a share.
    isolation_budget_nodes: int = 2
    isolation_budget_ratio: float = 0.02
    # How many it may isolate within an hour, likewise; and how often each job that still steps may
    # be stopped by that, or to grow.
    isolations_per_hour_nodes: int = 4
    isolations_per_hour_ratio: float = 0.01
    job_stops_per_hour: int = 4
    # A node is lost when nothing of it, agent or kernel, has answered anybody for this long.
    silence_ns: int = 5_000_000_000
    # How long an agent and the peers that were asked about it may take to answer.
    confirm_timeout_ns: int = 1_500_000_000
    # An agent whose kernel answers has this long to come back; then it is a finding.
    agent_return_ns: int = 15_000_000_000
    # How long a silence is borne of a node that the network called unreachable; and, in a fleet of
    # up to four nodes, one of which fewer peers can tell than there should be.
    loss_hold_ns: int = 60_000_000_000
    # Failure domain of this controller, where none of the nodes is its own machine.
    controller_domain: str = ""
    # Reconnection grace after the controller itself was away.
    startup_grace_ns: int = 120_000_000_000
    # How long a job may wait for its wanted nodes once it has its fewest.
    last_call_timeout_ns: int = 10_000_000_000
    # How long a connected agent may leave an order about a job unanswered, besides the grace for
    # processes; and how long a node may take to tell what it holds of a job that goes back.
    answer_timeout_ns: int = 60_000_000_000
    holdings_timeout_ns: int = 120_000_000_000
    # How long ranks may be behind those of other nodes in restoring their state, and all of them
    # may take from there to their first step.
    restore_timeout_ns: int = 1_800_000_000_000
    warmup_timeout_ns: int = 3_600_000_000_000
    # How long processes may take after SIGTERM when a generation is stopped.
    stop_grace_ns: int = 0
    # How long a repaired or returned node stays on probation.
    probation_ns: int = 600_000_000_000
    # How long a recovery listens to agents before it believes that all have spoken.
    recover_listen_ns: int = 30_000_000_000
    # How long a check of a node may go unanswered; and when one that failed is repeated first, and
    # how seldom it is repeated in the end.
    check_timeout_ns: int = 180_000_000_000
    recheck_ns: int = 30_000_000_000
    recheck_max_ns: int = 900_000_000_000
    # How often a node is checked while it waits as a spare; 0: never.
    spare_check_interval_ns: int = 0
    # A job that crashes again this soon after it was restored, twice, goes to an older step.
    probation_steps: int = 10
    # Findings this long before or after a fault may be its cause …
    evidence_window_ns: int = 60_000_000_000
    # … and a second unexplained death on a node within this long has it replaced and checked.
    strike_window_ns: int = 86_400_000_000_000
    # How long the end of a job waits for its last step to be in storage.
    final_save_timeout_ns: int = 120_000_000_000
    # How long nodes keep what they have of a job that failed, and a job without launchers waits.
    memory_kept_ns: int = 1_800_000_000_000
    # Fewest and most steps from one snapshot to the next; 0 leaves the most to the cost alone.
    snapshot_every_min: int = 1
    snapshot_every_max: int = 0
    # Snapshots may take this share of training, whatever they save; 0 counts every cost.
    snapshot_cost_ignored_ratio: float = 0.01
    # The most training that one fault may take along, whatever the formula says; 0 for no limit.
    snapshot_interval_ns_max: int = 60_000_000_000
    # The recoverable step may stand still for this long while a job makes steps; then people are
    # told what a failure would cost; 0: never.
    unsaved_max_ns: int = 60_000_000_000
    # How often an agent may restart a job in place while the controller is away.
    own_restarts: int = 0
    # How long a planned restart waits for its last step to be recoverable.
    planned_restart_timeout_ns: int = 300_000_000_000
    # Nodes wait this long for a job that lacks some before it grows, and no more often than this.
    growth_delay_ns: int = 60_000_000_000
    growth_interval_min_ns: int = 600_000_000_000
    # Nodes are drained this long before a maintenance window, at least; what has no place elsewhere
    # is stopped this long before it; and a window lasts this long, at least.
    maintenance_drain_lead_ns: int = 600_000_000_000
    maintenance_stop_lead_ns: int = 120_000_000_000
    maintenance_duration_min_ns: int = 60_000_000_000
    # No step for this long is shown, and after the other time a fault; 0: neither.
    stall_timeout_ns: int = 0
    stall_restart_timeout_ns: int = 0
    # How long a job may stand still whose culprit might go on by itself; 0: for ever.
    hang_patience_ns: int = 0
    # A job that dies again and again of what is outside of it waits this long at most before its
    # next attempt; 0: not at all.
    restart_backoff_max_ns: int = 600_000_000_000
    # Names of the isolation drivers: whom to tell that a node is to be left alone.
    isolation_drivers: tuple[str, ...] = ()
    # How long an ended job is kept for `everstep job`.
    ended_job_retention_ns: int = 7 * 86_400_000_000_000

    def mode_of(self, condition: str, most: Mode = Mode.ENFORCE) -> Mode:
        """Return how far automation may go for one condition.

        What an operator set for the condition holds; else the fleet's mode, but no further than
        ``most``, which the detector was shipped with.
        """
        chosen = dict(self.condition_modes).get(condition)
        return chosen or min(self.mode, most, key=_ORDER.index)
