"""Cluster membership: the cluster that this agent belongs to, adopted once and kept on its disk."""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class OtherClusterError(Exception):
    """The controller that answers is of another cluster; one sentence says what to do."""


class ClusterMembership:
    """Cluster of an agent; one that has none belongs to that of the first controller it reaches."""

    def __init__(self, cluster_id: str = "", keep: Callable[[str], None] = lambda _: None) -> None:
        self.cluster_id = cluster_id
        self._keep = keep

    def join(self, cluster_id: str) -> None:
        """Belong to a controller's cluster; "" is none. Raises OtherClusterError for another."""
        if not cluster_id or cluster_id == self.cluster_id:
            return
        if self.cluster_id:
            raise OtherClusterError(
                f"the controller is of cluster {cluster_id}, this agent of {self.cluster_id}: set "
                "'controller' to its own, or stop the agent, run 'everstep-agent leave-cluster' "
                "and start it again"
            )
        logger.info("this agent belongs to cluster %s from now on", cluster_id)
        self.cluster_id = cluster_id
        self._keep(cluster_id)
