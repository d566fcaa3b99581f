"""Assembly of what watches fleet and jobs: judges of samples, hangs, looks at ranks, slow parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from everstep_controller.assembly.fleet import Fleet
from everstep_controller.assembly.foundation import Foundation, NamedTask
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.hangs.end_watch import EndWatch
from everstep_controller.hangs.hang_watch import HangWatch
from everstep_controller.hangs.notices import HangNotices
from everstep_controller.inspection.evidence import HangEvidence
from everstep_controller.inspection.inspector import Inspector
from everstep_controller.inspection.judge_trials import JudgeTrials
from everstep_controller.journal.address import is_url
from everstep_controller.judging.judge import Judge
from everstep_controller.runtime.judge_failures import JudgeFailures
from everstep_controller.watches.collective_watch import CollectiveWatch
from everstep_controller.watches.judge_runner import JudgeRunner
from everstep_controller.watches.slow_monitor import SlowMonitor
from everstep_controller.watches.synchrony_watch import SynchronyMemory, SynchronyWatch

# A fact of the journal: its commits were on a standby once.
_WAS_SYNCHRONOUS = "was synchronous"


@dataclass(frozen=True, slots=True)
class Watches:
    """What watches; each part is a task."""

    inspector: Inspector
    failures: JudgeFailures
    judging: JudgeRunner
    hangs: HangWatch
    ends: EndWatch
    looks: CollectiveWatch
    slow: SlowMonitor
    trials: JudgeTrials
    # None where the journal is a file.
    synchrony: SynchronyWatch | None
    judge_interval_s: float

    def tasks(self) -> Iterator[NamedTask]:
        """Yield what runs as long as the controller does."""
        yield "judges", partial(self.judging.run, self.judge_interval_s)
        yield "hang watch", self.hangs.run
        yield "collective looks", self.looks.run
        yield "slow monitor", self.slow.run
        yield "end watch", self.ends.run
        yield "judge trials", self.trials.run
        if self.synchrony is not None:
            yield "journal's replication", self.synchrony.run


def assemble_watches(
    config: ControllerConfig, judges: Sequence[Judge], base: Foundation, fleet: Fleet
) -> Watches:
    """Return them; those that follow events do so from now on."""
    runtime, sessions = base.runtime, fleet.sessions
    failures = JudgeFailures(base.state, runtime.now_ns, runtime.announce)
    evidence = HangEvidence(config.hang_evidence)
    inspector = Inspector(fleet.questions, evidence, failures)
    ends = EndWatch(runtime, inspector)
    runtime.listen(ends.note_event)
    runtime.listen(HangNotices(runtime, sessions).note_event)
    looks = CollectiveWatch(runtime, inspector, sessions)
    return Watches(
        inspector=inspector,
        failures=failures,
        judging=JudgeRunner(
            runtime, sessions, fleet.samples, fleet.gpus, fleet.links, judges, failures
        ),
        hangs=HangWatch(runtime, inspector),
        ends=ends,
        looks=looks,
        slow=SlowMonitor(runtime, fleet.ranks, failures, looks.roles),
        trials=JudgeTrials(evidence, failures),
        synchrony=_synchrony_watch(config, base) if is_url(config.journal) else None,
        judge_interval_s=config.judge_interval_s,
    )


def _synchrony_watch(config: ControllerConfig, base: Foundation) -> SynchronyWatch:
    def keep(was: bool) -> None:
        base.journal.write(lambda store: store.set_fact(_WAS_SYNCHRONOUS, b"1" if was else b""))

    return SynchronyWatch(
        lambda: base.reads.ask(lambda reader: reader.replication()),
        config.journal_synchrony,
        SynchronyMemory(bool(base.history.fact(_WAS_SYNCHRONOUS)), keep),
        base.runtime.now_ns,
        base.runtime.announce,
    )
