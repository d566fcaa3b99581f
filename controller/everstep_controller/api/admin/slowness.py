"""Slowness of a job as operators and its user ask for it: who makes the others wait, or nobody."""

from collections.abc import Callable, Iterator

from everstep_common.printable import printable
from everstep_controller.api.admin.errors import OrderRefusedError, job_named
from everstep_controller.api.admin.messages import slow_line
from everstep_controller.api.admin.ranks import check_owner
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.core.planned.slow_swap import slow_parts
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.slow.live import SURE_ROWS, LiveFinding
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import Identity

_NOTHING_TOLD = (
    "no rank tells how long it works itself, and steps take equally long for all: its script tells "
    "it by 'with everstep.waiting():' around its collectives, and completed steps by "
    "everstep.step(N)"
)


class JobSlowness:
    """Tells who is slow. Raises UnknownNameError, NotTheOwnerError and OrderRefusedError."""

    def __init__(self, runtime: Runtime, finding: Callable[[JobRecord], LiveFinding]) -> None:
        self._runtime = runtime
        self._finding = finding

    async def judge(self, name: str, who: Identity) -> admin_pb2.Slowness:
        """Return what is known of a job's ranks."""
        job = job_named(self._runtime.state, name)
        await check_owner(who, job, "slowness")
        if job.state not in ACTIVE:
            raise OrderRefusedError(f"{job.name} has no ranks now: it is {job.state.value}")
        finding = self._finding(job)
        verdict = finding.verdict
        parts = _newest(slow_parts(job), finding)
        return admin_pb2.Slowness(
            job=job.name,
            sentence=_sentence(parts, finding),
            slow=[slow_line(self._runtime.state, part) for part in parts],
            plan=job.slow.plan if parts else "",
            imbalances=[
                admin_pb2.ImbalanceLine(kind=one.kind.value, ratio=one.ratio, sentence=one.sentence)
                for one in (verdict.imbalances if verdict is not None else ())
            ],
            pauses=[one.sentence for one in verdict.pauses] if verdict is not None else (),
            watched=verdict.watched if verdict is not None else (),
            blind=[printable(one) for one in _blind(finding)],
            ranks=finding.ranks or job.world_size,
            telling=finding.telling,
            comparisons=finding.rows,
            lost_ratio=verdict.lost_ratio if verdict is not None else 0.0,
            generation=job.generation.number,
        )


def _newest(known: tuple[SlowPart, ...], finding: LiveFinding) -> list[SlowPart]:
    """Return who is known to be slow, with the newest numbers."""
    newest = {(one.kind, one.name): one for one in finding.parts}
    return [newest.get((one.kind, one.name), one) for one in known]


def _sentence(parts: list[SlowPart], finding: LiveFinding) -> str:
    verdict = finding.verdict
    if len(parts) > 1:
        names = ", ".join(f"{one.kind} {one.name}" for one in parts[:_NAMED_MAX])
        more = f" and {len(parts) - _NAMED_MAX} more" if len(parts) > _NAMED_MAX else ""
        return f"Slow: {names}{more}"
    if parts:
        return parts[0].sentence[:1].upper() + parts[0].sentence[1:]
    if not finding.telling:
        return "Nobody can be judged: no rank tells how long it works itself"
    if verdict is None or not finding.is_sure:
        return f"Nobody is known to be slow after {finding.rows} of {SURE_ROWS} comparisons"
    imbalances = verdict.imbalances
    return f"Nobody is slow. {_capital(imbalances[0].sentence)}" if imbalances else "Nobody is slow"


_NAMED_MAX = 8


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _blind(finding: LiveFinding) -> Iterator[str]:
    if not finding.telling:
        yield _NOTHING_TOLD
    elif finding.telling < finding.ranks:
        missing = finding.ranks - finding.telling
        yield f"{missing} of {finding.ranks} ranks tell nothing of their own work"
    if finding.verdict is not None:
        yield from finding.verdict.blind
