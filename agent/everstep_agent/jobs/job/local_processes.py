"""Local processes: those of a job's newest generation here, and the phase all have reached."""

from everstep_agent.detectors.host.unkillable_ranks import HeldRank
from everstep_agent.ipc.pid_namespaces import named_processes, number_for
from everstep_agent.ipc.processes import ProcessIdentity, alive, kernel_wait
from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.progress import PhaseCount
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.plan import Plan
from everstep_agent.jobs.state.records import phase_record
from everstep_common.launcher_messages import Started
from everstep_common.reports import Phase


class LocalProcesses:
    """Launcher and ranks, as the record has them."""

    def __init__(self, record: JobRecord, context: JobContext) -> None:
        self._record = record
        self._context = context
        self._phases = PhaseCount(0)

    def expect(self, plan: Plan) -> None:
        """Count the phases of another generation, or of one that ran before the agent began."""
        self._phases = PhaseCount(plan.processes, set(self._record.facts.processes.phases))

    def record_started(self, message: Started) -> None:
        """All local processes run."""
        place, plan = self._record.facts.place, self._record.plan
        if message.generation != plan.generation:
            return
        if place.process is not None:
            numbers = [named.pid for named in message.processes[: plan.processes]]
            for process in named_processes(numbers, place.process, place.uid):
                self.watch(process)
        self.reach_phase(Phase.STARTED, None, message.at_boot_ns)

    def watch(self, process: ProcessIdentity) -> None:
        """Count a process among those that must be dead before the generation is."""
        known = self._record.facts.processes.running
        if process not in known:
            self._record.count_processes((*filter(alive, known), process))

    def reach_phase(self, phase: Phase, rank: int | None, at_boot_ns: int) -> None:
        """A rank (None: all of them) reached a phase; it is reported once all local ranks have."""
        reached_ns = self._phases.reach(phase, rank, min(at_boot_ns, self._context.boot_ns()))
        if reached_ns is None:
            return
        self._record.reach_phase(phase)
        self._context.outlet.record(phase_record(self._record.facts, phase, reached_ns))

    def report_again(self) -> None:
        """Say again which phase all local ranks have reached: the controller asks who is there."""
        facts = self._record.facts
        if facts.processes.phases:
            newest = facts.processes.phases[-1]
            self._context.outlet.record(phase_record(facts, newest, self._context.boot_ns()))

    def abandon(self, numbers: tuple[int, ...]) -> None:
        """Wait no longer for processes that SIGKILL does not end, as their launcher counts them."""
        facts = self._record.facts
        held = [
            one
            for one in facts.processes.running
            if number_for(facts.place.process, one.pid) in numbers
        ]
        known = filter(alive, facts.processes.held)
        self._record.abandon_processes(numbers, (*known, *held))

    def held(self) -> list[HeldRank]:
        """Return the ranks that were given up and are not gone yet."""
        held = self._record.facts.processes.held
        return [HeldRank(one.pid, kernel_wait(one.pid)) for one in held if alive(one)]

    def alive(self) -> list[ProcessIdentity]:
        """Return the ranks that run."""
        return [process for process in self._record.facts.processes.running if alive(process)]

    def any_alive(self) -> bool:
        """Return whether the launcher or a process of the job is still there."""
        launcher = self._record.facts.place.process
        return bool(self.alive()) or (launcher is not None and alive(launcher))
