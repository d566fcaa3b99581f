"""Catalogue of faults, as data: what is done to the fleet, for how long, and what it explains.

Records are judged by the catalogue as it is now: what is corrected here counts for older ones, too.
"""

from dataclasses import dataclass

from field.observation.records import Excuse

REDO, OWN_REDO, LOST, WAIT, WORDS, TRACE = (
    *(Excuse.REDO, Excuse.OWN_REDO, Excuse.LOST),
    *(Excuse.WAIT, Excuse.WORDS, Excuse.TRACE),
)
UNSAVED, ISOLATED, HELD = Excuse.UNSAVED, Excuse.ISOLATED, Excuse.HELD
SILENCE, FORGOTTEN, ENDED = Excuse.SILENCE, Excuse.FORGOTTEN, Excuse.ENDED


@dataclass(frozen=True, slots=True)
class Verdict:
    """What people have to be told of a fault that holds up a job which trains."""

    # The reason of an event of the job, and words of its message.
    reason: str
    words: str
    within_s: float
    # The shape of the jobs that it holds up; "": the job that it was done to.
    shape: str = ""
    # The job stands still by it. Then it explains no hang of which nobody knows why.
    of_hang: bool = True


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
    verdict: Verdict | None = None
    # It is done to a machine, though one job is chosen for it: it explains things of others, too.
    of_machine: bool = False


CATALOGUE = (
    # Ranks.
    FaultKind("rank-killed", "kill_rank", weight=10, excuses=(REDO, WORDS)),
    FaultKind("rank-aborts", "abort_rank", weight=3, excuses=(REDO, WORDS)),
    FaultKind(
        *("rank-frozen", "freeze_rank", (150, 150)), weight=3, excuses=(REDO, WAIT, WORDS),
        # As a rule after 5 s; two processors have thirty programs to run here.
        verdict=Verdict("HangJudged", "is stopped", 45.0),
    ),
    FaultKind(
        *("rank-holds-the-lock", "hold_lock", (150, 150)), weight=2, excuses=(REDO, WAIT, WORDS),
        # As a rule after 5 s, or 15; who it is is told only where all others wait.
        verdict=Verdict("JobStalled", "", 60.0),
    ),
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
    FaultKind("agent-killed", "kill_agent", weight=3, excuses=(UNSAVED, WORDS)),
    FaultKind("agent-away", "stop_agent", (5, 45), excuses=(UNSAVED, WORDS)),
    FaultKind("agent-crash-loops", "crash_agent", (15, 45), weight=1, excuses=(UNSAVED, WORDS)),
    FaultKind(
        *("agent-misconfigured", "misconfigure_agent", (15, 40)), weight=1,
        excuses=(UNSAVED, WORDS),
    ),
    FaultKind(
        # core.unsaved_max_s, 60, and what is near to it; its ranks write steps by themselves.
        *("agent-away-for-minutes", "leave_job_without_agent", (150, 150)), weight=2,
        excuses=(UNSAVED, WAIT, WORDS), of_machine=True,
        verdict=Verdict("StepsUnsaved", "", 105.0, of_hang=False),
    ),
    FaultKind("agent-frozen", "freeze_agent", (3, 28), excuses=(REDO, UNSAVED, WORDS)),
    # The controller: nothing that runs stops because it is away.
    FaultKind(
        *("controller-killed", "kill_controller"), weight=3,
        excuses=(WAIT, SILENCE, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-away", "stop_controller", (5, 40)),
        excuses=(WAIT, SILENCE, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-crash-loops", "crash_controller", (10, 40)), weight=1,
        excuses=(WAIT, SILENCE, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-frozen", "freeze_controller", (3, 28)), weight=1,
        excuses=(WAIT, SILENCE, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-clock-stepped", "step_controller_clock", (15, 40)), weight=1,
        excuses=(WAIT, SILENCE, WORDS), everywhere=True,
    ),
    FaultKind(
        *("controller-moved", "move_controller"), weight=1, aftermath_s=120,
        excuses=(WAIT, SILENCE, WORDS), everywhere=True,
    ),
    FaultKind(
        *("old-backup-restored", "restore_old_journal"), weight=1, aftermath_s=120,
        # A journal from before a job's begin has nothing of that time.
        excuses=(REDO, WAIT, SILENCE, FORGOTTEN, WORDS), everywhere=True,
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
    FaultKind("latest-torn", "tear_latest", weight=1, excuses=(WORDS,)),
    FaultKind("storage-hangs", "hang_storage", (8, 25), weight=1, excuses=(REDO, WAIT, WORDS)),
    FaultKind(
        *("storage-unmounted", "unmount_storage", (10, 30)), weight=1, excuses=(REDO, WAIT, WORDS)
    ),
    # All ranks that read samples wait for them: nobody's node, and nothing is restarted for it.
    FaultKind(
        *("dataset-hangs", "hang_dataset", (70, 75)), weight=1, everywhere=True,
        excuses=(WAIT, WORDS), aftermath_s=90,
        verdict=Verdict("HangJudged", "storage", 45.0, shape="samples"),
    ),
    FaultKind("clock-stepped", "step_clock", (15, 40), weight=1, excuses=(UNSAVED, WORDS)),
    # Operators.
    FaultKind(
        *("drain-and-release", "drain", (20, 40)),
        excuses=(OWN_REDO, HELD, WAIT, WORDS), machines=3,
    ),
    FaultKind(
        *("isolate-and-release", "isolate", (20, 40)), weight=1,
        excuses=(REDO, HELD, WAIT, WORDS), machines=3,
    ),
    FaultKind(
        # Whatever still runs on the node at its beginning, which is now, is stopped then.
        *("maintenance-window", "maintain", (20, 40)), weight=1,
        excuses=(REDO, OWN_REDO, HELD, WAIT, WORDS), aftermath_s=90, machines=3,
    ),
    FaultKind("job-stopped", "stop_job", weight=1, excuses=(ENDED, OWN_REDO, WAIT, WORDS)),
    FaultKind("job-restarted", "restart_job", weight=1, excuses=(OWN_REDO, WAIT, WORDS)),
    FaultKind(
        *("agents-upgraded", "upgrade_agents"), weight=1, everywhere=True,
        excuses=(UNSAVED, WORDS, TRACE),
    ),
)  # fmt: skip

KINDS = {kind.name: kind for kind in CATALOGUE}
