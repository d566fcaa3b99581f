"""Injector: makes the faults that an operator orders, and ends each after the ordered time."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.injections.effects import counters_of
from everstep_agent.injections.grammar import SpecError, parse
from everstep_agent.injections.guard import Guard
from everstep_agent.injections.kernel_lines import InjectedLog, kernel_text
from everstep_agent.injections.memory import InjectionMemory, InjectionStatus, Unended
from everstep_agent.injections.running import Running, RunningInjections
from everstep_agent.injections.specs import (
    GpuSpec,
    HangSpec,
    KernelSpec,
    LinkErrorsSpec,
    LinkSpec,
    SlowSpec,
    Spec,
    XidSpec,
)
from everstep_agent.injections.stopping import Stopper, go_on, may_stop
from everstep_agent.inventory.node_view import NodeView
from everstep_common.reports import InjectionChanged, InjectionState
from everstep_proto.generated import fleet_pb2
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)

_DURATION_S_MAX = 3600.0
_OFF = (
    "fault injection is switched off on this node; set fault_injection = true in its agent's "
    "configuration and restart the agent"
)


@dataclass(frozen=True, slots=True)
class Reach:
    """Parts of the agent that an injector can act on."""

    view: NodeView
    kernel_log: InjectedLog
    counters: Counters
    boot_ns: Callable[[], int]
    driver_pids: Callable[[], Iterable[int]]
    training_pids: Callable[[], Iterable[int]]
    look_soon: Callable[[], None]


class Injector:
    """Executor of injections; asked again for one, it gives the same answer."""

    def __init__(
        self,
        running: RunningInjections,
        reach: Reach,
        memory: InjectionMemory,
        record: Callable[[fleet_pb2.Record], None],
        *,
        allowed: bool,
    ) -> None:
        self._running = running
        self._reach = reach
        self._memory = memory
        self._record = record
        self._allowed = allowed
        running.on_caused = self.remember
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stoppers: dict[str, Stopper] = {}

    def begin(self) -> None:
        """Clean up after an agent that could not end its injections itself."""
        self._running.lingering(self._memory.lingering)
        for unended in self._memory.unended.values():
            go_on(unended.stopped)
            if unended.counters:
                self._reach.counters.forget(unended.counters)
            self._running.lingering(unended.caused)
        self._memory.lingering = self._running.over
        for name in list(self._memory.unended):
            self._answer(name, InjectionStatus(InjectionState.ENDED, "the agent was restarted"))

    def order(self, name: str, text: str, duration_s: float) -> None:
        """Inject, or say why not."""
        if answer := self._memory.answers.get(name):
            self._tell(name, answer)
            return
        try:
            spec = self._aimed(parse(text))
            message = self._start(name, spec)
        except SpecError as error:
            self._answer(name, InjectionStatus(InjectionState.REFUSED, str(error)))
            return
        duration_s = min(duration_s, _DURATION_S_MAX)
        loop = asyncio.get_running_loop()
        self._alarms[name] = loop.call_later(duration_s, self.clear, name, "its time was over")
        logger.warning("injection %s: %s for %g s", name, text, duration_s)
        self._answer(
            name, InjectionStatus(InjectionState.ACTIVE, f"{message}, for {duration_s:g} s")
        )
        self.remember()
        self._reach.look_soon()

    def clear(self, name: str, why: str = "its end was ordered") -> None:
        """End an injection; what it caused clears by its own rules."""
        ended = self._running.end(name)
        self._memory.lingering = self._running.over
        if ended is None:
            answer = self._memory.answers.get(name) or InjectionStatus(
                InjectionState.ENDED, "it was not known here"
            )
            self._tell(name, answer)
            return
        self._alarms.pop(name).cancel()
        if task := self._tasks.pop(name, None):
            task.cancel()
        if stopper := self._stoppers.pop(name, None):
            stopper.release()
        if prefix := counters_of(ended.spec):
            # The next reading lacks what the injection had added, which must not look like a reset
            # of the counter.
            self._reach.counters.forget(prefix)
        self._answer(name, InjectionStatus(InjectionState.ENDED, why))
        self._reach.look_soon()

    def close(self) -> None:
        """End all: nothing that was injected outlives the agent."""
        for name in list(self._running.running):
            self.clear(name, "the agent stops")

    def remember(self) -> None:
        """Note what a successor must know if this agent is killed."""
        self._memory.lingering = self._running.over
        self._memory.note_unended(
            {
                name: Unended(
                    caused=tuple(one.caused),
                    counters=counters_of(one.spec),
                    stopped=self._stoppers[name].targets() if name in self._stoppers else (),
                )
                for name, one in self._running.running.items()
            }
        )

    # ---------------------------------------------------------------------------------------------

    def _aimed(self, spec: Spec) -> Spec:
        """Return it with its target found. Raises SpecError when there is no such target."""
        if not self._allowed:
            raise SpecError(_OFF)
        if isinstance(spec, LinkSpec):
            _among(spec.link, [link.name for link in self._reach.view.links or ()], "link")
        if isinstance(spec, LinkErrorsSpec):
            _among(spec.counter, self._counters_of(spec.link), f"counter of {spec.link} named")
        if isinstance(spec, GpuSpec | XidSpec):
            reading = self._reach.view.gpus
            known = [gpu.pci for gpu in reading.gpus] if reading else []
            if spec.pci and (known or isinstance(spec, GpuSpec)):
                _among(spec.pci, known, "GPU")
            elif not spec.pci and not known:
                raise SpecError("no GPU is known here; an Xid can name any: xid:79@0000:3b:00.0")
            return replace(spec, pci=spec.pci or known[0])
        return spec

    def _counters_of(self, link: str) -> list[str]:
        view = self._reach.view
        readings = (*view.link_statistics, *view.port_counters)
        return sorted(name for one in readings if one.link == link for name in one.values)

    def _start(self, name: str, spec: Spec) -> str:
        """Make the fault and return what was done. Raises SpecError."""
        now_ns = self._reach.boot_ns()
        done = spec.told
        if isinstance(spec, SlowSpec):
            self._stop(name, spec, self._reach.training_pids)
        elif isinstance(spec, HangSpec):
            self._stop(name, spec, self._reach.driver_pids)
        self._running.running[name] = Running(name, spec, now_ns)
        if isinstance(spec, XidSpec | KernelSpec):
            done = f"{done}: {self._reach.kernel_log.add(kernel_text(spec), now_ns)}"
        return done

    def _stop(
        self, name: str, spec: SlowSpec | HangSpec, pids: Callable[[], Iterable[int]]
    ) -> None:
        found = tuple(pids())
        if not found:
            slow = isinstance(spec, SlowSpec)
            raise SpecError(
                "no training process is attached to this agent"
                if slow
                else "no process talks to an NVIDIA driver here"
            )
        if problem := may_stop(found):
            raise SpecError(problem)
        try:
            guard = Guard()
        except OSError as error:
            raise SpecError(f"no process can be started that lets them go on: {error}") from error
        stopper = self._stoppers[name] = Stopper(pids, guard)
        work = stopper.slow(spec.ratio) if isinstance(spec, SlowSpec) else stopper.hold()
        self._tasks[name] = asyncio.create_task(work, name=f"injection-{name}")

    def _answer(self, name: str, answer: InjectionStatus) -> None:
        self._memory.note_answer(name, answer)
        logger.warning("injection %s: %s", name, answer.message)
        self._tell(name, answer)

    def _tell(self, name: str, answer: InjectionStatus) -> None:
        self._record(record_of(InjectionChanged(name, answer.state, answer.message)))


def _among(name: str, known: Iterable[str], kind: str) -> None:
    names = list(known)
    if name not in names:
        has = ", ".join(names) or "none"
        raise SpecError(f"there is no {kind} {name} here; this node has: {has}")
