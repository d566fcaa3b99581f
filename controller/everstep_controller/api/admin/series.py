"""Series of the admin API: the newest steps of a job and samples of a node, as memory has them."""

from collections.abc import Callable
from typing import Protocol

from everstep_common.samples import COLUMNS
from everstep_controller.api.admin.errors import job_named, node_named
from everstep_controller.core.accounting.categories import Group
from everstep_controller.core.accounting.committed_steps import STEPS_KEPT, CommittedStep
from everstep_controller.core.model.state import State
from everstep_controller.telemetry.samples import NodeSamples
from everstep_proto.generated import admin_pb2


class SampleSource(Protocol):
    """Source of the newest samples of a node."""

    def of_node(self, node: str) -> NodeSamples:
        """Return what is kept of a node; empty where none came yet."""
        ...


class SeriesQueries:
    """Questions about what changes with time, a method each; they raise UnknownNameError."""

    def __init__(self, state: Callable[[], State], samples: SampleSource) -> None:
        self._state, self._samples = state, samples

    def steps(self, request: admin_pb2.GetStepsRequest) -> admin_pb2.Steps:
        """Return the newest steps of a job."""
        job = job_named(self._state(), request.job)
        found = job.ledger.steps[-min(request.limit or STEPS_KEPT, STEPS_KEPT) :]
        return admin_pb2.Steps(
            job=job.name,
            step=[one.step for one in found],
            start_ns=[one.start_ns for one in found],
            end_ns=[one.end_ns for one in found],
            training_ns=[_training_ns(one) for one in found],
        )

    def samples(self, name: str) -> admin_pb2.Samples:
        """Return what is kept of a node's samples."""
        node = node_named(self._state(), name)
        kept = self._samples.of_node(node.name)
        return admin_pb2.Samples(
            node=node.name,
            newest_ns=kept.newest_ns,
            interval_ns=kept.interval_ns,
            columns=[
                admin_pb2.SampleColumn(name=column, values=kept.rows[:, place].tolist())
                for place, column in enumerate(COLUMNS)
            ],
        )


def _training_ns(step: CommittedStep) -> int:
    slow = step.excess_category.group is Group.SLOW
    return step.productive_ns + (step.excess_ns if slow else 0)
