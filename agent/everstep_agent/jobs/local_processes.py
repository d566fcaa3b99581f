"""The processes of a job's newest generation here, and how far all of them have come."""

from everstep_agent.jobs.desk import Desk
from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.phases import PhaseCount
from everstep_agent.jobs.pid_namespaces import named_processes, number_for
from everstep_agent.jobs.processes import ProcessIdentity, alive
from everstep_agent.jobs.records import phase_record
from everstep_common.reports import Phase
from everstep_common.trainer_messages import Started
from everstep_proto.generated import fleet_pb2


class LocalProcesses:
    """Launcher and ranks, as the facts have them."""

    def __init__(self, facts: JobFacts, desk: Desk) -> None:
        self._facts = facts
        self._desk = desk
        self._phases = PhaseCount(0)

    def expect(self, plan: fleet_pb2.StartGeneration) -> None:
        """Count the phases of another generation, or of one that ran before the agent began."""
        self._phases = PhaseCount(plan.processes, set(self._facts.phases))

    def started(self, message: Started) -> None:
        """All local processes run."""
        facts, plan = self._facts, self._facts.plan
        if message.generation != plan.generation:
            return
        if facts.launcher is not None:
            numbers = [named.pid for named in message.processes[: plan.processes]]
            for process in named_processes(numbers, facts.launcher, facts.uid):
                self.watch(process)
        self.reach(Phase.STARTED, None, message.at_boot_ns)

    def watch(self, process: ProcessIdentity) -> None:
        """Count a process among those that must be dead before the generation is."""
        if process not in self._facts.processes:
            self._facts.processes = (*filter(alive, self._facts.processes), process)
            self._desk.store.save(self._facts)

    def reach(self, phase: Phase, rank: int | None, at_boot_ns: int) -> None:
        """A rank (None: all of them) reached a phase; told once all local ranks have."""
        reached_ns = self._phases.reach(phase, rank, min(at_boot_ns, self._desk.boot_ns()))
        if reached_ns is None:
            return
        self._facts.phases += (phase,)
        self._desk.store.save(self._facts)
        self._desk.outlet.record(phase_record(self._facts, phase, reached_ns))

    def give_up(self, numbers: tuple[int, ...]) -> None:
        """Wait no longer for processes that SIGKILL does not end, as their launcher counts them."""
        facts = self._facts
        facts.abandoned = numbers
        known = {one: number_for(facts.launcher, one.pid) for one in facts.processes}
        held = tuple(one for one in facts.processes if known[one] in numbers)
        facts.processes = tuple(one for one in facts.processes if one not in held)
        facts.held = (*filter(alive, facts.held), *held)
        self._desk.store.save(facts)

    def held(self) -> list[int]:
        """Return the ranks that were given up and are not gone yet."""
        return [process.pid for process in self._facts.held if alive(process)]

    def running(self) -> bool:
        """Return whether the launcher or a process of the job is still there."""
        launcher = self._facts.launcher
        known = self._facts.processes + ((launcher,) if launcher else ())
        return any(alive(process) for process in known)
