"""A training process's place in its job, and what it tells the agent of its node."""

import logging
import os
from collections.abc import Mapping

from everstep.agent_link import AgentLink
from everstep.environment import Membership, local_world_size, membership, rank, world_size
from everstep.memory import Copier
from everstep.snapshots import Snapshots
from everstep.state import State
from everstep_common.clock import boot_ns
from everstep_common.trainer_messages import Progress

logger = logging.getLogger("everstep")

# An agent that is being restarted is back within a second or two.
ATTACH_TIMEOUT_S = 10.0


class Run:
    """One rank of one generation. Outside a job, everything works and does nothing."""

    def __init__(
        self, member: Membership | None, link: AgentLink | None, environ: Mapping[str, str]
    ) -> None:
        self._member = member
        self._link = link
        self._snapshots: Snapshots | None = None
        self._copier = Copier.for_node(local_world_size(environ))
        self.rank = rank(environ)
        self.world_size = world_size(environ)
        self.generation = member.generation if member else 0

    @property
    def active(self) -> bool:
        """Whether this process takes part in a job (and is not a child forked by one that does)."""
        return self._link is not None and self._link.usable

    @property
    def restore_step(self) -> int | None:
        """The step that the recovery plan restores; None: from the beginning."""
        return self._link.restore_step if self._link else None

    @property
    def unsaved_steps(self) -> int:
        """How many steps could not be snapshotted."""
        return self._snapshots.unsaved_steps if self._snapshots else 0

    def step(self, step: int) -> None:
        """Tell that ``step`` is complete; call after its snapshot. Never waits, never raises."""
        link = self._link
        if link is None or not link.attach_quickly():
            return
        link.ready()
        stall_ns = self._snapshots.take_stall_ns() if self._snapshots else 0
        link.tell(Progress(step, boot_ns(), stall_ns))

    def snapshots(self, state: State) -> Snapshots:
        """Return the snapshots of ``state``: the shards of this rank by their names in the job."""
        starts_fresh = self._member is not None and self._member.starts_fresh
        self._snapshots = Snapshots(state, self._link, self._copier, starts_fresh=starts_fresh)
        return self._snapshots


def init(environ: Mapping[str, str] = os.environ) -> Run:
    """Attach to the agent of this node. Raises RefusedError when it does not take this process."""
    member = membership(environ)
    if member is None:
        return Run(None, None, environ)
    link = AgentLink(member)
    if not link.attach(ATTACH_TIMEOUT_S):
        logger.warning("no agent at %s; steps are not saved until it is back", member.socket)
    return Run(member, link, environ)
