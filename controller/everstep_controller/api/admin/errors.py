"""Errors of the admin API, and the look-ups by name or id that raise them; each is one sentence."""

from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State


class UnknownNameError(LookupError):
    """No node, job, window or injection of this name; the message is one sentence."""


class OrderRefusedError(Exception):
    """Order that makes no sense now; one sentence that names the next command."""


class UnusableRequestError(ValueError):
    """Request that makes no sense, whenever it is made; one sentence that names what would."""


def node_named(state: State, name: str) -> NodeRecord:
    """Return a node. Raises UnknownNameError."""
    node = state.nodes.get(name)
    if node is None:
        raise UnknownNameError(f"no node named {name!r}")
    return node


def group_named(state: State, name: str) -> str:
    """Return the name of a group that is configured. Raises UnusableRequestError."""
    if name in state.groups:
        return name
    if not state.groups:
        raise UnusableRequestError(
            f"there is no group {name!r}: none is configured; docs/groups.md shows how"
        )
    raise UnusableRequestError(
        f"there is no group {name!r}; groups are {', '.join(sorted(state.groups))}"
    )


def job_named(state: State, name: str) -> JobRecord:
    """Return the newest job of a name, or the job of an id. Raises UnknownNameError."""
    job = state.job(name)
    if job is None:
        raise UnknownNameError(f"no job named {name!r}")
    return job


def current_job_named(state: State, name: str) -> JobRecord:
    """Return a job to which belongs what nodes keep under its name. Raises UnknownNameError."""
    job = job_named(state, name)
    if not state.is_current(job):
        newest = state.names.get(job.name, "")
        raise UnknownNameError(
            f"what nodes keep under the name {job.name} is not of {job.id}, but of {newest}; see "
            f"'everstep job {newest}'"
        )
    return job
