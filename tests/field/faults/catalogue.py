"""Catalogue of faults, as data: what is done to the fleet, for how long, and what it explains."""

from dataclasses import dataclass

from field.observation.records import Excuse

REDO, OWN_REDO, LOST, ISOLATED, WAIT, WORDS, TRACE = Excuse


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: the blow that makes it, its seconds, its weight, and what it explains."""

    name: str
    blow: str
    seconds: tuple[float, float] = (0.0, 0.0)
    weight: int = 2
    excuses: tuple[Excuse, ...] = ()
    aftermath_s: float = 60.0
    # It explains something on all nodes, not only on those that it touched.
    everywhere: bool = False
    # The least number of machines, so that somebody is left.
    machines: int = 2


CATALOGUE = (
    # Ranks.
    FaultKind("rank-killed", "kill_rank", weight=10, excuses=(REDO, WORDS)),
    FaultKind("rank-aborts", "abort_rank", weight=3, excuses=(REDO, WORDS)),
    FaultKind("rank-frozen", "freeze_rank", (150, 150), weight=3, excuses=(REDO, WAIT, WORDS)),
    FaultKind("rank-frozen-briefly", "freeze_rank", (1, 4), weight=2, excuses=(WORDS,)),
    FaultKind("all-ranks-of-a-node-killed", "kill_all_ranks", weight=3, excuses=(REDO, WORDS)),
    FaultKind("launcher-killed", "kill_launcher", weight=3, excuses=(REDO, WORDS)),
    # Machines.
    FaultKind(
        *("machine-without-power", "pull_power", (15, 40)),
        excuses=(REDO, LOST, WAIT, WORDS), aftermath_s=120, machines=3,
    ),
    FaultKind(
        *("machine-shut-down", "shut_down", (15, 40)), weight=1,
        excuses=(REDO, LOST, WAIT, WORDS), aftermath_s=120, machines=3,
    ),
    FaultKind(
        *("machine-frozen", "freeze_machine", (3, 25)),
        excuses=(REDO, LOST, WAIT, WORDS), aftermath_s=90, machines=3,
    ),
    FaultKind(
        *("gpu-off-the-bus", "log_fatal_xid", (25, 40)), weight=1,
        excuses=(REDO, ISOLATED, WAIT, WORDS), aftermath_s=120, machines=3,
    ),
    # Agents: nothing that runs stops because one is away.
    FaultKind("agent-killed", "kill_agent", weight=3, excuses=(WORDS,)),
    FaultKind("agent-away", "stop_agent", (5, 45), excuses=(WORDS,)),
    FaultKind("agent-crash-loops", "crash_agent", (15, 45), weight=1, excuses=(WORDS,)),
    FaultKind("agent-misconfigured", "misconfigure_agent", (15, 40), weight=1, excuses=(WORDS,)),
    FaultKind("agent-frozen", "freeze_agent", (3, 28), excuses=(REDO, WORDS)),
    # The controller: nothing that runs stops because it is away.
    FaultKind(
        *("controller-killed", "kill_controller"), weight=3, excuses=(WAIT, WORDS), everywhere=True
    ),
    FaultKind(
        *("controller-away", "stop_controller", (5, 40)), excuses=(WAIT, WORDS), everywhere=True
    ),
    FaultKind(
        *("controller-crash-loops", "crash_controller", (10, 40)), weight=1,
        excuses=(WAIT, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-frozen", "freeze_controller", (3, 28)), weight=1,
        excuses=(WAIT, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-moved", "move_controller"), weight=1, aftermath_s=120,
        excuses=(WAIT, WORDS), everywhere=True,
    ),
    FaultKind(
        *("old-backup-restored", "restore_old_journal"), weight=1, aftermath_s=120,
        excuses=(REDO, WAIT, WORDS), everywhere=True,
    ),
    # The network.
    FaultKind(
        *("machine-cut-off", "cut_machine", (4, 40)),
        excuses=(REDO, LOST, WAIT, WORDS), aftermath_s=90, machines=3,
    ),
    FaultKind(
        *("machine-deaf", "deafen_machine", (4, 30)), weight=1,
        excuses=(REDO, LOST, WAIT, WORDS), aftermath_s=90, machines=3,
    ),
    FaultKind(
        *("racks-cut", "cut_racks", (4, 40)), weight=1, everywhere=True,
        # From the controller a cut and a dead rack look the same: nobody is to be lost by it.
        excuses=(REDO, WAIT, WORDS), aftermath_s=90,
    ),
    FaultKind(
        # The ranks on its machine are cut off from those of other machines as well.
        *("controller-cut-off", "cut_controller", (4, 40)), everywhere=True,
        excuses=(REDO, WAIT, WORDS), aftermath_s=60,
    ),
    FaultKind(
        *("two-machines-cut", "cut_two", (4, 40)), weight=1,
        excuses=(REDO, WAIT, WORDS), aftermath_s=90, machines=3,
    ),
    # Users of a node, and its disks.
    FaultKind("bulk-port-flooded", "flood_bulk_port", (8, 8), excuses=(WORDS,)),
    FaultKind(
        *("storage-full", "fill_storage", (15, 40)), weight=1,
        excuses=(WORDS, REDO), everywhere=True,
    ),
    FaultKind("storage-hangs", "hang_storage", (8, 25), weight=1, excuses=(REDO, WAIT, WORDS)),
    FaultKind(
        *("storage-unmounted", "unmount_storage", (10, 30)), weight=1, excuses=(REDO, WAIT, WORDS)
    ),
    # All ranks that read samples wait for them: nobody's node, and nothing is restarted for it.
    FaultKind(
        *("dataset-hangs", "hang_dataset", (70, 75)), weight=1, everywhere=True,
        excuses=(WAIT, WORDS), aftermath_s=90,
    ),
    FaultKind("clock-stepped", "step_clock", (15, 40), weight=1, excuses=(WORDS,)),
    # Operators.
    FaultKind(
        *("drain-and-release", "drain", (20, 40)),
        excuses=(OWN_REDO, ISOLATED, WAIT, WORDS), machines=3,
    ),
    FaultKind(
        *("isolate-and-release", "isolate", (20, 40)), weight=1,
        excuses=(REDO, ISOLATED, WAIT, WORDS), machines=3,
    ),
    FaultKind("job-restarted", "restart_job", weight=1, excuses=(OWN_REDO, WAIT, WORDS)),
    FaultKind(
        *("agents-upgraded", "upgrade_agents"), weight=1, excuses=(WORDS, TRACE), everywhere=True,
    ),
)  # fmt: skip

KINDS = {kind.name: kind for kind in CATALOGUE}
