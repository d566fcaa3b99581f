"""Controller orders: the term of each is checked, and it is handed on or done here."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from everstep_agent.sources.source import ProbeResult
from everstep_common import clock
from everstep_common.judging.findings import Finding
from everstep_common.judging.judgement import Faulty
from everstep_common.orders import (
    ClearInjection,
    ConfirmPeer,
    Inject,
    InspectRanks,
    JobOrder,
    PeerList,
    ReadOutput,
    RevokedCertificates,
    RunCheck,
    RunPairTest,
    SpareMemory,
    SparePreload,
    StartGeneration,
    TellLauncher,
    VaultDirective,
)
from everstep_common.quantities import COUNT_MAX, NUMBER_MAX
from everstep_common.reports import CheckFinished, OrderRejected, OutputRead, RanksInspected
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_from_wire
from everstep_proto.record_codec import WireError, from_wire, to_wire
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)

# How many answers are remembered, so that a check that is ordered again is not run again.
_CHECKS_REMEMBERED = 100
# How often the agent reports messages of one kind that it cannot use.
_TELL_EVERY_NS = 60_000_000_000


class Jobs(Protocol):
    """Port to the part that keeps this node's jobs."""

    def on_order(self, order: JobOrder) -> None:
        """Do what an order about a job says; its term is checked."""
        ...

    def on_directive(self, directive: VaultDirective) -> None:
        """Keep, free and replicate snapshots as the controller says."""
        ...

    def on_spare_memory(self, wanted: SpareMemory) -> None:
        """Have memory ready for a job whose spare this node is."""
        ...

    def on_spare_preload(self, told: SparePreload) -> None:
        """Have standbys of a job whose spare this node is import what its ranks do."""
        ...

    def read_output(self, question: ReadOutput) -> OutputRead:
        """Return what ranks of a job have written lately."""
        ...

    def tell_launcher(self, told: TellLauncher) -> None:
        """Have the user of a job read a sentence."""
        ...

    def inspect(self, question: InspectRanks, answer: Callable[[RanksInspected], None]) -> None:
        """Answer, in a few seconds, what the ranks of a job do."""
        ...

    def on_connected(self, forgotten: bool) -> None:
        """Tell the controller what this node holds; ``forgotten``: and who takes part in what."""
        ...

    def on_halted(self) -> None:
        """Have everybody who waits for the controller here read that it acts on nothing."""
        ...

    def on_away(self) -> None:
        """The controller is away: who waits for its word looks again."""
        ...


class Peers(Protocol):
    """Port to the part that watches other nodes."""

    def watch(self, peers: PeerList) -> None:
        """Watch these peers from now on."""
        ...

    def confirm(self, question: ConfirmPeer) -> None:
        """Find out whether a peer is alive, and say so."""
        ...

    def tell_again(self) -> None:
        """Report the peers that are silent now."""
        ...


class Injections(Protocol):
    """Port to the part that injects faults; each once, however often it is ordered."""

    def order(self, name: str, text: str, duration_s: float) -> None:
        """Make a fault, or say why not."""
        ...

    def clear(self, name: str) -> None:
        """End a fault."""
        ...


class PairTests(Protocol):
    """Port to the part that does the fixed work of pair tests; each once."""

    def order(self, wanted: RunPairTest) -> None:
        """Do the work, or say why not."""
        ...

    def cancel(self, why: str) -> None:
        """Stop at once what is being done."""
        ...


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check: whether the node may take ranks by it, and one sentence."""

    passed: bool
    message: str


class TermGate:
    """Highest term of any controller so far; orders of a lower one are refused."""

    def __init__(self, highest: int, keep: Callable[[int], None]) -> None:
        self.highest = highest
        self.refused = 0
        self._keep = keep

    def admits(self, term: int, what: str) -> bool:
        """Return whether an order of this term may be done. Raises WireError for what is none."""
        if term > NUMBER_MAX:  # kept, it would make every later Hello one that no controller takes
            raise WireError(f"{what}: a term of {term}")
        if term < self.highest:
            self.refused += 1
            logger.warning(
                "refused: %s has term %d, the highest seen is %d", what, term, self.highest
            )
            return False
        if term > self.highest:
            self.highest = term
            self._keep(term)
        return True


class RejectedOrders:
    """Reports to the controller of its messages that could not be used.

    Of each kind the first is reported at once, the others with the next one a minute later: what
    is sent again and again must not fill the outbox.
    """

    def __init__(self) -> None:
        # By kind: when it was last reported, and what has come since.
        self._told_ns: dict[str, int] = {}
        self._since: dict[str, OrderRejected] = {}

    def note(self, rejected: OrderRejected, now_ns: int) -> OrderRejected | None:
        """Note one; return what is to be told now."""
        kind = rejected.kind
        before = self._since.pop(kind, None)
        if before is not None:
            rejected = replace(before, count=min(before.count + 1, COUNT_MAX))
        if kind in self._told_ns and now_ns - self._told_ns[kind] < _TELL_EVERY_NS:
            self._since[kind] = rejected
            return None
        self._told_ns[kind] = now_ns
        return rejected


def _rejection(message: fleet_pb2.ControllerMessage, error: WireError) -> OrderRejected:
    """Return the report of a message that cannot be used."""
    of: fleet_pb2.ControllerMessage | fleet_pb2.Order = message
    kind: str = message.WhichOneof("body") or "unknown"
    if kind == "order":
        of, kind = message.order, message.order.WhichOneof("body") or kind
    job: str = getattr(getattr(of, kind, None), "job", "")
    return OrderRejected(kind, message.order.order_id, job, str(error), count=1)


@dataclass(frozen=True, slots=True)
class OrderTargets:
    """Parts of the agent that carry out what the controller orders."""

    jobs: Jobs
    peers: Peers
    check: Callable[[], Awaitable[CheckResult]]
    record: Callable[[fleet_pb2.Record], None]
    injections: Injections
    pair_tests: PairTests
    # Says a word on the stream that is worth nothing later.
    say: Callable[[fleet_pb2.AgentMessage], None]
    # Takes the list of certificates that count no more.
    revoke: Callable[[RevokedCertificates], None] = lambda _: None


class Orders:
    """Dispatcher of the controller's messages, each to the part that it is for."""

    def __init__(
        self,
        terms: TermGate,
        targets: OrderTargets,
        boot_ns: Callable[[], int] = clock.boot_ns,
    ) -> None:
        self._terms = terms
        self._to = targets
        self._results: OrderedDict[str, CheckResult | None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._boot_ns = boot_ns
        self._rejected = RejectedOrders()

    def on_welcome(self, welcome: fleet_pb2.Welcome, forgotten: bool) -> None:
        """See Listener. A lower term is connected to, so that it learns of the higher one."""
        if forgotten:
            logger.warning(
                "the controller has lost records that it had acknowledged; was its journal "
                "restored from a backup?"
            )
        try:
            self._terms.admits(welcome.term, "the controller that answered")
        except WireError as error:
            logger.warning("ignored: %s", error)
        self._to.jobs.on_connected(forgotten)
        self._to.peers.tell_again()

    def on_message(self, message: fleet_pb2.ControllerMessage) -> None:
        """See Listener. What cannot be used is left out: it would be sent again as it is."""
        try:
            self._dispatch(message)
        except WireError as error:
            said = self._rejected.note(_rejection(message, error), self._boot_ns())
            if said is not None:
                logger.warning("ignored: %s of the controller: %s", said.kind, said.error)
                self._to.record(record_of(said))

    def on_halted(self) -> None:
        """See Listener."""
        self._to.jobs.on_halted()

    def on_away(self) -> None:
        """See Listener."""
        self._to.jobs.on_away()

    def _dispatch(self, message: fleet_pb2.ControllerMessage) -> None:
        match message.WhichOneof("body"):
            case "order":
                self._order(message.order)
            case "vault" | "spare_memory" | "spare_preload" as kind:
                self._about_job(kind, message)
            case "peers" | "confirm" | "revoked" as kind:
                self._about_others(kind, message)
            case "read_output":
                read = self._to.jobs.read_output(from_wire(ReadOutput, message.read_output))
                output = to_wire(read, fleet_pb2.OutputRead)
                self._to.say(fleet_pb2.AgentMessage(output=output))
            case "inspect":
                self._to.jobs.inspect(from_wire(InspectRanks, message.inspect), self._say_inspected)
            case "tell_launcher":
                self._to.jobs.tell_launcher(from_wire(TellLauncher, message.tell_launcher))
            case _:
                raise WireError("it has no body that this version of the agent knows")

    def _say_inspected(self, told: RanksInspected) -> None:
        wire = to_wire(told, fleet_pb2.RanksInspected)
        self._to.say(fleet_pb2.AgentMessage(inspected=wire))

    def _about_others(self, kind: str, message: fleet_pb2.ControllerMessage) -> None:
        if kind == "peers":
            self._to.peers.watch(from_wire(PeerList, message.peers))
        elif kind == "confirm":
            self._to.peers.confirm(from_wire(ConfirmPeer, message.confirm))
        else:
            self._to.revoke(from_wire(RevokedCertificates, message.revoked))

    def _about_job(self, kind: str, message: fleet_pb2.ControllerMessage) -> None:
        jobs = self._to.jobs
        if kind == "vault" and self._admits(message.vault, "vault"):
            jobs.on_directive(from_wire(VaultDirective, message.vault))
        elif kind == "spare_memory" and self._admits(message.spare_memory, "spare memory"):
            jobs.on_spare_memory(from_wire(SpareMemory, message.spare_memory))
        elif kind == "spare_preload" and self._admits(message.spare_preload, "preload"):
            jobs.on_spare_preload(from_wire(SparePreload, message.spare_preload))

    def _admits(
        self,
        told: fleet_pb2.VaultDirective | fleet_pb2.SpareMemory | fleet_pb2.SparePreload,
        what: str,
    ) -> bool:
        return self._terms.admits(told.term, f"{what} of job {told.job}")

    def _order(self, message: fleet_pb2.Order) -> None:
        if not self._terms.admits(message.term, f"order {message.order_id}"):
            return
        order = order_from_wire(message)
        logger.info("order %s: %s: %s", order.id, type(order).__name__, order.reason)
        match order:
            case RunCheck():
                self._check(order.id)
            case RunPairTest():
                self._to.pair_tests.order(order)
            case Inject():
                self._to.injections.order(order.id, order.spec, order.duration_ns / 1e9)
            case ClearInjection():
                self._to.injections.clear(order.injection)
            case _:
                if isinstance(order, StartGeneration):
                    self._to.pair_tests.cancel(f"ranks of {order.job} start here")
                self._to.jobs.on_order(order)

    def _check(self, order_id: str) -> None:
        if order_id not in self._results:
            self._results[order_id] = None
            while len(self._results) > _CHECKS_REMEMBERED:
                self._results.popitem(last=False)
            task = asyncio.create_task(self._run_check(order_id), name=f"check-{order_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif result := self._results[order_id]:
            self._answer(order_id, result)

    async def _run_check(self, order_id: str) -> None:
        result = await self._to.check()
        self._results[order_id] = result
        self._answer(order_id, result)

    def _answer(self, order_id: str, result: CheckResult) -> None:
        logger.info("check %s: %s", order_id, result.message)
        self._to.record(record_of(CheckFinished(order_id, result.passed, result.message)))


_TOLD = 5


async def run_check(
    look: Callable[[], Awaitable[Sequence[ProbeResult]]],
    open_fatal: Callable[[], Sequence[Finding]],
    deadline_s: float,
) -> CheckResult:
    """Read every probe once within the deadline, and judge what was read.

    ``open_fatal`` returns the fatal findings that are open. One of them fails the check only when
    this look has seen it again: a latched one is the controller's to judge, and one reading that is
    not raised yet may be a link that bounces.
    """
    try:
        async with asyncio.timeout(deadline_s):
            looks = await look()
    except TimeoutError:
        return CheckResult(False, f"the probes did not finish within {deadline_s:g} s")
    return judge_check(looks, open_fatal())


def judge_check(looks: Sequence[ProbeResult], open_fatal: Sequence[Finding]) -> CheckResult:
    """Judge one look at everything."""
    unread = [f"probe {one.probe}: {one.trouble}" for one in looks if one.trouble]
    denied = [f"probe {one.probe}: {one.denied}" for one in looks if one.denied]
    seen = {said.key for one in looks for said in one.judgements if isinstance(said, Faulty)}
    fatal = [
        f"{one.condition} on {one.component}: {one.message}"
        for one in open_fatal
        if one.key in seen
    ]
    if problems := fatal + unread:
        return CheckResult(False, "; ".join(problems[:_TOLD]))
    if denied:
        return CheckResult(True, f"nothing fatal was read; {'; '.join(denied)}")
    return CheckResult(True, "every probe was read, and nothing fatal")
