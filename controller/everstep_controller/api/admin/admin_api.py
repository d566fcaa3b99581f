"""Admin API: all calls that operators and viewers make, by subject."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from everstep_controller.api.admin.askers import Looks
from everstep_controller.api.admin.controllers import ControllerOperations
from everstep_controller.api.admin.drivers import DriverQueries
from everstep_controller.api.admin.enrolment import EnrolmentOperations
from everstep_controller.api.admin.event_log import EventLog, LineChoice
from everstep_controller.api.admin.injections import InjectionOperations
from everstep_controller.api.admin.maintenance import MaintenanceOperations
from everstep_controller.api.admin.operations import NodeOperations, PlannedWorkOperations
from everstep_controller.api.admin.pair_tests import PairTestOperations
from everstep_controller.api.admin.policies import PolicyQueries
from everstep_controller.api.admin.queries import AdminSources, Queries
from everstep_controller.api.admin.ranks import JobLogs, JobStacks, SlowRanks
from everstep_controller.api.admin.series import SeriesQueries
from everstep_controller.api.admin.snapshots import SnapshotOperations
from everstep_controller.core.model.state import CONTROLLER, FLEET
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2


class AdminApi:
    """Calls of the admin service; what they raise is in errors.py, and of the journal."""

    def __init__(self, sources: AdminSources) -> None:
        runtime = sources.runtime
        self._now_ns = runtime.now_ns
        self._log = EventLog(runtime, sources.history, sources.reads)
        self.snapshots = SnapshotOperations(runtime, sources.vault)
        self.drivers = DriverQueries(runtime, sources.readings, sources.failed_calls)
        self.policies = PolicyQueries(runtime)
        self.queries = Queries(sources, self._log, self.snapshots, self.drivers)
        self.series = SeriesQueries(lambda: runtime.state, sources.samples)
        self.operations = NodeOperations(runtime, self.queries)
        self.injections = InjectionOperations(runtime)
        self.pair_tests = PairTestOperations(runtime)
        self.planned_work = PlannedWorkOperations(runtime)
        looks = Looks(runtime)
        self.logs = JobLogs(runtime, sources.questions, looks)
        self.stacks = JobStacks(runtime, sources.inspector, looks)
        self.slowness = SlowRanks(runtime, sources.slowness, sources.collectives, looks)
        self.maintenance = MaintenanceOperations(runtime)
        self.controllers = ControllerOperations(runtime, sources.reads, sources.own)
        self.enrolment = EnrolmentOperations(runtime, sources.sessions, sources.token_issuer)

    async def events(self, request: admin_pb2.WatchEventsRequest) -> AsyncIterator[admin_pb2.Event]:
        """Yield old lines of the event list, then new ones. Raises FollowerTooSlowError."""
        subject = request.subject
        if subject and subject not in (CONTROLLER, FLEET):
            self.queries.subject(subject)  # raises for a name that nobody has
        choice = LineChoice(subject, request.limit, self._since_ns(request))
        async with aclosing(self._log.follow(choice, endlessly=request.follow)) as lines:
            async for line in lines:
                yield answer(admin_pb2.Event, line)

    def _since_ns(self, request: admin_pb2.WatchEventsRequest) -> int:
        within = self._now_ns() - request.within_ns if request.within_ns > 0 else 0
        return max(0, request.since_ns, within)
