"""Assembly of an agent: its parts, each made from those before it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everstep_agent.backoff import Backoff
from everstep_agent.cluster import ClusterMembership
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment.renewer import Renewer
from everstep_agent.enrolment.revocations import NOTE, Revocations
from everstep_agent.injections.injector import Injector, Reach
from everstep_agent.injections.memory import InjectionMemory
from everstep_agent.jobs.job.context import Environment, user_refusals
from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.jobs.state.remembered_ends import RememberedEnds
from everstep_agent.kernel_messages import RecentKernelMessages
from everstep_agent.liveness import Liveness
from everstep_agent.monitoring.findings import Findings, load_findings
from everstep_agent.monitoring.memory import Memory
from everstep_agent.monitoring.node_watch import NodeListeners, NodeWatch
from everstep_agent.orders import CheckResult, Orders, OrderTargets, TermGate, run_check
from everstep_agent.pair_test.runner import PairTester
from everstep_agent.persistence.agent_database import CLUSTER_NOTE, ENDS_NOTE
from everstep_agent.persistence.data_folder import open_store
from everstep_agent.persistence.disk_store import DiskStore, LostStore
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.quotas.user_quotas import UserRefusals
from everstep_agent.sampling import ROWS_PER_BATCH, SAMPLE_INTERVAL_S, SampleSender
from everstep_agent.tables.site_rules import SiteRules, load_site_rules
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import StampClock
from everstep_common.judging.book import FindingBook
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess
from everstep_proto.reports import record_of

_RECONNECT_FIRST_S = 0.1
# Without a word of the controller for so long, and without any peer, this node is cut off. Longer
# than a fleet whose probes are blocked is ever quiet while jobs make steps.
_CUT_OFF_S = 3.0


@dataclass(frozen=True, slots=True)
class AgentOutlet:
    """See the Outlet of jobs: records wait in the outbox, reports for the stream."""

    outbox: Outbox
    uplink: Uplink

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet."""
        self.outbox.record(record)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet."""
        self.uplink.vault_report(report)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMemory:
    """What outlives an agent: notes and outbox on the disk, and the findings that are open."""

    store: DiskStore | LostStore
    memory: Memory
    outbox: Outbox
    findings: Findings
    cluster: ClusterMembership
    terms: TermGate
    ends: RememberedEnds
    revocations: Revocations


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBase:
    """What jobs and orders rest on: memory, the stream, the sources of the node, its peers."""

    config: AgentConfig
    stamp: StampClock
    kept: AgentMemory
    uplink: Uplink
    kernel: RecentKernelMessages
    node: NodeWatch
    liveness: Liveness
    refusals: UserRefusals
    renewer: Renewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The parts of one agent, in the order in which they are made."""

    base: AgentBase
    jobs: NodeJobs
    samples: SampleSender
    injector: Injector
    orders: Orders


def assemble(config: AgentConfig, stamp: StampClock) -> Agent:
    """Return an agent that has opened its data folder, and begun nothing."""
    rng = random.Random()
    base = _base(config, stamp, rng)
    outlet = AgentOutlet(base.kept.outbox, base.uplink)
    jobs = NodeJobs(config.jobs, outlet, config.node_name, _world_of_jobs(base))
    injector = _injector(base, jobs)
    samples = SampleSender(
        base.node.view,
        base.uplink.samples,
        stamp,
        rng.uniform(0.0, SAMPLE_INTERVAL_S * ROWS_PER_BATCH),
        jobs.rank_columns,
        busy_ratio=config.signals.gpu.busy_ratio,
    )
    orders = _orders(base, jobs, injector)
    return Agent(base=base, jobs=jobs, samples=samples, injector=injector, orders=orders)


def _base(config: AgentConfig, stamp: StampClock, rng: random.Random) -> AgentBase:
    site = load_site_rules(config.rules_folder)
    kept = _open_memory(config, stamp, site)
    uplink = _uplink(config, stamp, kept, rng)
    kernel = RecentKernelMessages(stamp, uplink.kernel_messages, site.rules)
    node = NodeWatch(
        config,
        kept.findings,
        kept.memory,
        stamp,
        site=site,
        listeners=NodeListeners(kernel.add_lines, uplink.renew),
    )
    return AgentBase(
        config=config,
        stamp=stamp,
        kept=kept,
        uplink=uplink,
        kernel=kernel,
        node=node,
        liveness=Liveness(config.node_name, uplink.say),
        refusals=user_refusals(),
        renewer=Renewer(config.node_name, config.enrolment.addresses, config.tls, rng),
    )


def _open_memory(config: AgentConfig, stamp: StampClock, site: SiteRules) -> AgentMemory:
    store, remembered = open_store(config.state_folder, config.outbox_write_timeout_s)
    notes = remembered.notes

    def note(key: str) -> Callable[[str], None]:
        return lambda value: store.note(key, value)

    outbox = Outbox(store, remembered, stamp, config.outbox_records_max)
    open_before = load_findings(notes.get("findings", "[]"), site.conditions)
    book = FindingBook(site.conditions, open_before, config.signals.modes)
    return AgentMemory(
        store=store,
        memory=Memory(notes, store.note),
        outbox=outbox,
        findings=Findings(book, outbox.record, note("findings"), stamp),
        cluster=ClusterMembership(
            notes.get(CLUSTER_NOTE) or config.enrolment.cluster, note(CLUSTER_NOTE)
        ),
        revocations=Revocations(notes.get(NOTE, ""), note(NOTE)),
        terms=TermGate(
            int(notes.get("highest_term", "0")), lambda term: store.note("highest_term", str(term))
        ),
        ends=RememberedEnds(notes.get(ENDS_NOTE, "[]"), note(ENDS_NOTE), lambda: stamp().wall_ns),
    )


def _uplink(
    config: AgentConfig, stamp: StampClock, kept: AgentMemory, rng: random.Random
) -> Uplink:
    settings = UplinkSettings(
        controllers=tuple(
            LocalAccess(address=address, tls=config.tls, secret_file=config.secret_file)
            for address in config.controllers
        ),
        connect_timeout_s=config.connect_timeout_s,
        silence_s=config.controller_timeout_s,
    )
    backoff = Backoff(rng, _RECONNECT_FIRST_S, config.reconnect_backoff_max_s)
    return Uplink(settings, kept.outbox, stamp, backoff, kept.cluster)


def _world_of_jobs(base: AgentBase) -> Environment:
    config, kept, uplink = base.config, base.kept, base.uplink
    return Environment(
        refusals=base.refusals,
        tls=config.tls,
        revoked=kept.revocations.trouble_of,
        controller_away=lambda: controller_away(config.controllers, uplink),
        controller_away_s=uplink.away_s,
        tell_halted=uplink.renew_if_halted,
        cut_off=lambda: base.liveness.hears_nobody() and uplink.quiet_s() > _CUT_OFF_S,
        cluster_id=lambda: kept.cluster.cluster_id,
        gpus=base.node.gpus,
        gpu_memory_unowned_bytes=config.signals.gpu.unowned_memory_bytes,
        ends=kept.ends,
        term=lambda: kept.terms.highest,
    )


def controller_away(addresses: Sequence[str], uplink: Uplink) -> str:
    """Return why no controller acts for this node, and what happens then; "" while one does."""
    address = " or ".join(addresses)
    if uplink.connected and uplink.halted:
        return (
            f"the controller at {uplink.address} acts on nothing: "
            f"{uplink.halted}; what runs goes on, and new work begins when it acts again"
        )
    if uplink.connected:
        return ""
    trouble = uplink.trouble or "it has not answered yet"
    if uplink.refused:
        return (
            f"the controller at {address} does not take this node: {trouble}; "
            "what runs goes on, and new work begins when it is taken"
        )
    return (
        f"waiting for the controller at {address}: {trouble}; what runs goes"
        " on, and new work begins when it answers; 'everstep nodes' tells whether it does"
    )


def _injector(base: AgentBase, jobs: NodeJobs) -> Injector:
    """Return the injector of a node; it refuses everything unless the operator allows it."""
    node, memory = base.node, base.kept.memory
    reach = Reach(
        view=node.view,
        kernel_log=node.injected_log,
        counters=node.counters,
        boot_ns=node.boot_ns,
        driver_pids=lambda: [pid] if (pid := node.nvml.pid) else [],
        training_pids=jobs.training_pids,
        look_soon=node.look_soon,
    )
    caused = InjectionMemory(
        memory.notes.get("injections", "{}"), lambda text: memory.keep("injections", text)
    )
    record, allowed = base.kept.outbox.record, base.config.fault_injection
    return Injector(node.injections, reach, caused, record, allowed=allowed)


def _orders(base: AgentBase, jobs: NodeJobs, injector: Injector) -> Orders:
    kept, node = base.kept, base.node

    async def check() -> CheckResult:
        fatal = kept.findings.book.fatal_findings
        return await run_check(node.watch.probe_now, fatal, base.config.check_deadline_s)

    tester = PairTester(
        lambda answer: kept.outbox.record(record_of(answer)),
        jobs.rank_pids,
        lambda: node.injections.work_factor,
    )
    targets = OrderTargets(
        jobs,
        base.liveness,
        check,
        kept.outbox.record,
        injector,
        tester,
        base.uplink.say,
        kept.revocations.replace,
    )
    return Orders(kept.terms, targets)
