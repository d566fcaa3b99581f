"""Stacks of a job: what its ranks do at this moment, for operators and the job's user."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from everstep_controller.api.admin.errors import OrderRefusedError, job_named
from everstep_controller.api.admin.ranks.ownership import check_owner
from everstep_controller.api.fleet.inspector import BusyError, Inspector
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import Identity


class JobStacks:
    """Looks at jobs. Raises UnknownNameError, NotTheOwnerError and OrderRefusedError."""

    def __init__(self, runtime: Runtime, inspector: Inspector) -> None:
        self._runtime = runtime
        self._inspector = inspector

    async def inspect(
        self, request: admin_pb2.InspectJobRequest, who: Identity
    ) -> AsyncGenerator[admin_pb2.NodeInspection, None]:
        """Yield what each node tells of its ranks, the fastest first."""
        job = job_named(self._runtime.state, request.job)
        await check_owner(who, job, "stack")
        if job.state not in ACTIVE:
            raise OrderRefusedError(f"{job.name} has no ranks now: it is {job.state.value}")
        try:
            async with aclosing(self._inspector.inspect(job)) as nodes:
                async for told in nodes:
                    yield admin_pb2.NodeInspection(
                        node=told.node,
                        first_rank=told.first_rank,
                        ranks=told.ranks,
                        reports=told.reports,
                        missing=told.missing,
                    )
        except BusyError as error:
            raise OrderRefusedError(str(error)) from error
