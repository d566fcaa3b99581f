"""The controller as the command line sees it: answers from a fleet of five nodes and a job."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import grpc
from google.protobuf.message import Message

from everstep_cli.client.admin import AdminError, NameNotFoundError, Reply, Request
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import make_printable
from everstep_cli.client.times import RequestedTime
from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub
from fakes import cli_fleet, cli_schedulers, cli_snapshots
from fakes.cli_fleet import EVENTS, FINDING, INCIDENT, JOB, LEDGER, NOW_NS

__all__ = ["EVENTS", "FINDING", "JOB", "LEDGER", "NOW_NS", "FakeAdmin"]


class _Names:
    """Stands where the stub stands: each of its calls is its name."""

    def __getattr__(self, name: str) -> str:
        return name


_NAMES = _Names()


class FakeAdmin:
    """Answers from the fleet above, and keeps what it was told to change."""

    def __init__(self, trouble: AdminError | None = None) -> None:
        self.told: list[tuple[str, ...]] = []
        self.inspections: list[admin_pb2.NodeInspection] = []
        self.connections: list[Connection] = []
        self.selections: list[admin_pb2.ListNodesRequest] = []
        self.since: list[RequestedTime | None] = []
        # What is asked for somebody.
        self.asked_for_people: list[admin_pb2.ReadLogsRequest | admin_pb2.InspectJobRequest] = []
        # A controller of before there were summaries.
        self.older = False
        self.summary = admin_pb2.FleetSummary()
        self.summary.CopyFrom(cli_fleet.SUMMARY)
        # What is said of these nodes instead of removing them.
        self.refuses: dict[str, AdminError] = {}
        self.planned: admin_pb2.PlannedLine | None = None
        # A window of its nodes has begun.
        self.maintained = False
        self.withheld_by_others = False
        self.schedulers = [cli_schedulers.KUBERNETES, cli_schedulers.SLURM]
        # Each node as these have it.
        self.views: Sequence[admin_pb2.SchedulerView] = ()
        self.drivers_paused = ""
        self.waiting_nodes = 0
        self.policies: list[admin_pb2.GetPolicyRequest] = []
        self.outcomes: Sequence[admin_pb2.WhatIfLine] = cli_schedulers.OUTCOMES
        # Since when there are records; 0: for all of the time that is asked for.
        self.records_since_ns = 0
        self.trouble = trouble

    @contextmanager
    def connect(self, connection: Connection) -> Iterator["FakeAdmin"]:
        """Stand where everstep_cli.client.grpc_admin.connect stands."""
        self.connections.append(connection)
        yield self

    def call(
        self,
        method: "Callable[[AdminStub], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
    ) -> Reply:
        answer = self._answers()[cast("str", method(cast("AdminStub", _NAMES)))]
        return cast("Reply", answer(request))

    def stream(
        self,
        method: "Callable[[AdminStub], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
        *,
        endless: bool = False,
    ) -> Iterator[Reply]:
        if isinstance(request, (admin_pb2.ReadLogsRequest, admin_pb2.InspectJobRequest)):
            self.asked_for_people.append(request)
        stream = self._streamed()[cast("str", method(cast("AdminStub", _NAMES)))]
        yield from cast("Iterator[Reply]", stream(request))

    def _answers(self) -> dict[str, Callable[..., Message]]:
        return {
            "ListNodes": self._selected_nodes,
            "GetNode": lambda asked: self.node(asked.node),
            "ListFindings": lambda asked: self.findings(asked.node),
            "ListIncidents": lambda asked: self.incidents(open_only=asked.open),
            "Why": lambda asked: self.why(asked.name),
            "ListJobs": lambda _: self.jobs(),
            "GetJob": lambda asked: self.job(asked.job),
            "GetLedger": lambda asked: self.ledger(asked.job),
            "GetSteps": lambda asked: self.steps(asked.job),
            "GetSamples": lambda asked: self.samples(asked.node),
            "GetSlowness": lambda asked: self.slowness(asked.job),
            "GetFleetLedger": lambda asked: self.fleet_ledger(asked.period, asked.periods),
            "GetController": lambda _: self.controller(),
            "GetSnapshots": lambda asked: self.snapshots(asked.job),
            "ForgetJob": lambda order: self.forget(order.job),
            "Isolate": lambda order: self.isolate(order.node, order.reason),
            "RemoveNode": lambda order: self.remove_node(order.node, order.reason),
            "DeclareLost": lambda order: self.declare_lost(order.node, order.reason),
            "Drain": lambda order: self.drain(order.node, order.reason),
            "RestartJob": lambda order: self.restart(order.job, _step(order), order.reason),
            "StopJob": lambda order: self.stop(order.job, _step(order), order.reason),
            "CancelRestart": lambda order: self.cancel_restart(order.job, order.reason),
            "AddMaintenance": self.add_maintenance,
            "CancelMaintenance": lambda order: self.cancel_maintenance(order.window),
            "ListMaintenance": lambda asked: self.maintenance(asked.all),
            "Release": lambda order: self.release(order.node, order.reason, order.accepted),
            "Pause": self.pause,
            "Resume": self.resume,
            "Inject": lambda order: self.inject(
                order.node, order.spec, order.duration_ns / 1e9, order.reason
            ),
            "ClearInjections": lambda order: self.clear_injections(order.node, order.injection),
            "ListInjections": lambda asked: self.injections(asked.node),
            "ListDrivers": lambda _: self.drivers(),
            "GetPolicy": self.policy,
            "ListWebhooks": lambda _: self.webhooks(),
            "TestWebhook": lambda asked: self.try_webhook(asked.name),
        }

    def _streamed(self) -> dict[str, Callable[..., Iterator[Message]]]:
        return {
            "WatchEvents": lambda asked: self.events(
                asked.subject, asked.limit, asked.follow, _since(asked)
            ),
            "ListCopies": lambda asked: self.copies(
                asked.job, asked.step if asked.HasField("step") else None, asked.node
            ),
            "ReadLogs": lambda asked: self.logs(
                asked.job, asked.rank if asked.HasField("rank") else None, follow=asked.follow
            ),
            "InspectJob": lambda asked: self.inspect(asked.job),
            "GetHistory": self.history,
        }

    def _selected_nodes(self, request: admin_pb2.ListNodesRequest) -> admin_pb2.ListNodesReply:
        asked = admin_pb2.ListNodesRequest()
        asked.CopyFrom(request)
        asked.page_nodes = 0
        return self.nodes(asked if asked.ListFields() else None)

    def nodes(self, request: admin_pb2.ListNodesRequest | None = None) -> admin_pb2.ListNodesReply:
        self._fail()
        known = cli_fleet.nodes()
        if request is not None:
            self.selections.append(request)
            for name in request.names:
                if name not in [node.node for node in known]:
                    raise NameNotFoundError(f"no node named {name!r}; did you mean 'node-1'?")
        return admin_pb2.ListNodesReply(
            nodes=known,
            refused_agents=[cli_fleet.REFUSED_AGENT],
            summary=None if self.older else self.summary,
            drivers_paused=self.drivers_paused,
        )

    def node(self, name: str) -> admin_pb2.NodeDetail:
        self._fail()
        for node in cli_fleet.nodes():
            if node.node == name:
                return admin_pb2.NodeDetail(
                    summary=node,
                    agent_version="0.1.0",
                    boot_id="0f5c",
                    kernel="6.1.0",
                    cpu_model="AMD EPYC",
                    disks=[
                        admin_pb2.DiskLine(
                            device="/dev/vda1", mount="/", filesystem="ext4",
                            size_bytes=64 << 30, free_bytes=20 << 30,
                        )
                    ],
                    interfaces=[
                        admin_pb2.InterfaceLine(
                            name="eth0", kind="ethernet", up=True,
                            speed_bits_per_s=25_000_000_000,
                        )
                    ],
                    notes=["NVIDIA driver library not found"],
                    findings=[FINDING] if name == FINDING.node else [],
                    schedulers=self.views,
                    clock_uncertainty_ns=120_000,
                    kernel_messages=[
                        "2026-01-31 12:00:00 error: nvme0n1: I/O Cmd(0x2) [sector 8], timeout"
                    ],
                )  # fmt: skip
        raise NameNotFoundError(f"no node named {name!r}; did you mean 'node-1'?")

    def findings(self, node: str) -> admin_pb2.ListFindingsReply:
        self._fail()
        return admin_pb2.ListFindingsReply(findings=[] if node == "node-1" else [FINDING])

    def incidents(self, *, open_only: bool) -> admin_pb2.ListIncidentsReply:
        self._fail()
        return admin_pb2.ListIncidentsReply(incidents=[] if open_only else [INCIDENT])

    def why(self, name: str) -> admin_pb2.WhyReply:
        self._fail()
        return admin_pb2.WhyReply(
            kind="node", state="lost", answer=EVENTS[1].message, decisions=EVENTS
        )

    def events(
        self, subject: str, limit: int, follow: bool, since: RequestedTime | None = None
    ) -> Iterator[admin_pb2.Event]:
        self._fail()
        self.since.append(since)
        yield from [e for e in EVENTS if subject in ("", e.subject)][-limit:]

    def jobs(self) -> admin_pb2.ListJobsReply:
        self._fail()
        return admin_pb2.ListJobsReply(jobs=[JOB.summary])

    def job(self, name: str) -> admin_pb2.JobDetail:
        self._fail()
        if name != "demo":
            raise NameNotFoundError(f"no job named {name!r}; did you mean 'demo'?")
        shown = admin_pb2.JobDetail()
        shown.CopyFrom(JOB)
        if self.planned is not None:
            shown.planned.CopyFrom(self.planned)
        return shown

    def ledger(self, job: str) -> admin_pb2.Ledger:
        self._fail()
        return LEDGER

    def steps(self, job: str) -> admin_pb2.Steps:
        self.job(job)
        return cli_fleet.STEPS

    def samples(self, node: str) -> admin_pb2.Samples:
        self.node(node)
        return cli_fleet.SAMPLES

    def logs(self, job: str, rank: int | None, *, follow: bool) -> Iterator[admin_pb2.LogLines]:
        self.job(job)
        self.told.append(("logs", job, str(rank), str(follow)))
        line = admin_pb2.LogLines(
            node="node-1", rank=3, generation=2, lines=["step 9", "\x1b[2Jboo"]
        )
        make_printable(line)
        yield line
        yield admin_pb2.LogLines(node="node-2", note="the agent of node-2 is away")

    def inspect(self, job: str) -> Iterator[admin_pb2.NodeInspection]:
        self.job(job)
        self.told.append(("inspect", job))
        yield from self.inspections

    def slowness(self, job: str) -> admin_pb2.Slowness:
        self.job(job)
        self.told.append(("slowness", job))
        return admin_pb2.Slowness(job=job, sentence="Nobody is slow", ranks=4, telling=4)

    def fleet_ledger(self, period: str, periods: int) -> admin_pb2.FleetLedger:
        self._fail()
        self.told.append(("fleet ledger", period, str(periods)))
        return cli_fleet.FLEET_LEDGER

    def history(self, asked: admin_pb2.GetHistoryRequest) -> Iterator[admin_pb2.HistoryRow]:
        self.told.append(("history", asked.kind, asked.key, str(NOW_NS - asked.since_ns)))
        yield from (row for row in cli_fleet.HISTORY if row.kind == asked.kind)

    def controller(self) -> admin_pb2.ControllerDetail:
        self._fail()
        return admin_pb2.ControllerDetail(
            version="0.1.0", term=3, mode="enforce", journal_events=812,
            started_ns=NOW_NS - 300_000_000_000, budgets="1 of 2 working nodes isolated",
            cluster_id="c0ffee", drivers_paused=self.drivers_paused,
        )  # fmt: skip

    def snapshots(self, job: str) -> admin_pb2.Snapshots:
        self.job(job)
        return cli_snapshots.SNAPSHOTS

    def copies(self, job: str, step: int | None, node: str) -> Iterator[admin_pb2.CopyLine]:
        self.job(job)
        yield from cli_snapshots.copies(step, node)

    def forget(self, job: str) -> admin_pb2.ForgetJobReply:
        self.told.append(("forget", job))
        self.job(job)
        return cli_snapshots.FORGOTTEN

    def isolate(self, node: str, reason: str) -> admin_pb2.NodeDetail:
        self.told.append(("isolate", node, reason))
        detail = self.node(node)
        detail.summary.claims.add(owner="operator", reason=reason)
        return detail

    def remove_node(self, node: str, reason: str) -> admin_pb2.RemoveNodeReply:
        self._fail()
        self.node(node)
        if node in self.refuses:
            raise self.refuses[node]
        self.told.append(("remove", node, reason))
        return admin_pb2.RemoveNodeReply(node=node)

    def declare_lost(self, node: str, reason: str) -> admin_pb2.DeclareLostReply:
        self._fail()
        self.node(node)
        if node in self.refuses:
            raise self.refuses[node]
        self.told.append(("lost", node, reason))
        return admin_pb2.DeclareLostReply(node=node, state="lost")

    def drain(self, node: str, reason: str) -> admin_pb2.DrainReply:
        self.told.append(("drain", node, reason))
        self.node(node)
        return admin_pb2.DrainReply(node=node, plans=[f"demo goes on without {node} after step 9"])

    def restart(self, job: str, at_step: int | None, reason: str) -> admin_pb2.RestartJobReply:
        self.told.append(("restart", job, str(at_step), reason))
        self.job(job)
        return admin_pb2.RestartJobReply(job=job, plan="a restart at a step boundary is planned")

    def stop(self, job: str, at_step: int | None, reason: str) -> admin_pb2.StopJobReply:
        self.told.append(("stop", job, str(at_step), reason))
        self.job(job)
        return admin_pb2.StopJobReply(job=job, plan="the end of the job is planned")

    def cancel_restart(self, job: str, reason: str) -> admin_pb2.CancelRestartReply:
        self.told.append(("cancel restart", job, reason))
        self.job(job)
        return admin_pb2.CancelRestartReply(job=job, plan=f"{job} goes on as it is")

    def add_maintenance(
        self, request: admin_pb2.AddMaintenanceRequest
    ) -> admin_pb2.MaintenanceWindow:
        begin_ns = request.begin_ns if request.HasField("begin_ns") else NOW_NS + request.in_ns
        spans = (*request.nodes, str(begin_ns - NOW_NS), str(request.duration_ns), request.reason)
        self.told.append(("maintenance", *spans))
        window = cli_fleet.window()
        window.begin_ns, window.end_ns = begin_ns, begin_ns + request.duration_ns
        return window

    def cancel_maintenance(self, window: str) -> admin_pb2.MaintenanceWindow:
        self.told.append(("cancel", window))
        shown = cli_fleet.window()
        shown.state, shown.ended_by = "cancelled", "ann"
        return shown

    def maintenance(self, every: bool) -> admin_pb2.ListMaintenanceReply:
        self._fail()
        window = cli_fleet.window()
        window.state = "begun" if self.maintained else window.state
        shown = [window] if every or self.maintained else []
        return admin_pb2.ListMaintenanceReply(windows=shown)

    def release(self, node: str, reason: str, accepted: Sequence[str] = ()) -> admin_pb2.NodeDetail:
        self.told.append(("release", node, reason, *accepted))
        detail = self.node(node)
        if self.withheld_by_others:
            detail.summary.claims.add(owner="scheduler", reason="command: ann: cables")
        if self.maintained:
            detail.summary.claims.add(owner="maintenance", reason="maintenance m-3")
        return detail

    def pause(self, order: admin_pb2.PauseRequest) -> admin_pb2.AutomationReply:
        if order.drivers:
            self.drivers_paused = f"ann: {order.reason}" if order.reason else "ann"
            self.told.append(("pause drivers", order.reason))
            return self._automation([])
        self.told.append(("pause", order.subject, order.reason))
        return self._automation([order.subject or "fleet"])

    def resume(self, order: admin_pb2.ResumeRequest) -> admin_pb2.AutomationReply:
        if order.drivers:
            self.drivers_paused = ""
            self.told.append(("resume drivers",))
        else:
            self.told.append(("resume", order.subject))
        return self._automation([])

    def _automation(self, paused: list[str]) -> admin_pb2.AutomationReply:
        waiting = self.waiting_nodes
        return admin_pb2.AutomationReply(
            paused=paused, drivers_paused=self.drivers_paused, waiting_nodes=waiting
        )

    def drivers(self) -> admin_pb2.ListDriversReply:
        self._fail()
        paused_ns = NOW_NS - 3_600_000_000_000 if self.drivers_paused else 0
        return admin_pb2.ListDriversReply(
            drivers=self.schedulers, paused=self.drivers_paused, paused_ns=paused_ns
        )

    def webhooks(self) -> admin_pb2.ListWebhooksReply:
        self._fail()
        line = admin_pb2.WebhookLine(name="pager", host="hooks.example.org", cursor=812, sent=9)
        return admin_pb2.ListWebhooksReply(webhooks=[line])

    def try_webhook(self, name: str) -> admin_pb2.TestWebhookReply:
        self.told.append(("try webhook", name))
        return admin_pb2.TestWebhookReply(
            accepted=True, answer="it answered 204", host="hooks.example.org"
        )

    def policy(self, request: admin_pb2.GetPolicyRequest) -> admin_pb2.PolicyReply:
        self._fail()
        self.policies.append(request)
        reply = admin_pb2.PolicyReply()
        reply.CopyFrom(cli_schedulers.POLICY)
        if request.what_if_ns:
            reply.what_if.extend(self.outcomes)
            reply.known_since_ns = self.records_since_ns
        return reply

    def inject(self, node: str, spec: str, seconds: float, reason: str) -> admin_pb2.InjectionLine:
        self.told.append(("inject", node, spec, f"{seconds:g}", reason))
        self.node(node)
        line = cli_fleet.injection(spec)
        if spec.startswith("xyz"):
            line.state, line.message = "refused", "there is no injection 'xyz'"
        return line

    def clear_injections(self, node: str, injection: str) -> admin_pb2.InjectionsReply:
        self.told.append(("clear", node, injection))
        return admin_pb2.InjectionsReply()

    def injections(self, node: str) -> admin_pb2.InjectionsReply:
        self.node(node)
        return admin_pb2.InjectionsReply(injections=[cli_fleet.injection("xid:79")])

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble


def _step(order: admin_pb2.RestartJobRequest | admin_pb2.StopJobRequest) -> int | None:
    return order.at_step if order.HasField("at_step") else None


def _since(asked: admin_pb2.WatchEventsRequest) -> RequestedTime | None:
    if not asked.since_ns and not asked.within_ns:
        return None
    return RequestedTime(asked.since_ns or None, asked.within_ns)
