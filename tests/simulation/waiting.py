"""Waits of jobs: none for longer than its table allows, and none for nodes that are there."""

from everstep_controller.core.jobs.devices import OCCUPYING
from everstep_controller.core.jobs.transition import answer_patience_ns
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.recovery.deadlines import missing_answers
from everstep_controller.core.recovery.planning import candidates, place_members
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.node import SimulatedNode
from everstep_sim.timeline import SECOND

LIMITED = (JobState.STOPPING, JobState.REPLANNING, JobState.STARTING)
FOR_NODES = (JobState.FORMING, JobState.WAITING_CAPACITY)
_FIT = (NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION)
# Nodes that have been there for as many times as long as the last call for more of them lasts are
# enough for a job that waits for nodes.
_CALLS = 2


class Waits:
    """Sees how long each job waits: for answers of its members, and for nodes that are there.

    Each start of the controller, and each word that it waits for, begins the wait for answers anew.
    """

    def __init__(self) -> None:
        # By the name of the job: what it waits for, and since when.
        self._since: dict[str, tuple[tuple[object, ...], int]] = {}
        # By job and node, since when the node could take ranks of the job.
        self._there_ns: dict[tuple[str, str], int] = {}
        self.longest_ns: dict[JobState, int] = {}

    def __call__(self, cluster: SimulatedCluster) -> None:
        """Fail where a job waits for too long."""
        for job in cluster.jobs:
            self._for_answers(cluster, job)
            self._for_nodes(cluster, job)

    def _for_answers(self, cluster: SimulatedCluster, job: JobRecord) -> None:
        state, now_ns = cluster.controller.core.state, cluster.controller.now_ns
        if job.state not in LIMITED or state.halted:
            self._since.pop(job.name, None)
            return
        missing = tuple(missing_answers(state, job))
        told_ns = job.awaited.heard_ns
        waits_for = (state.term, job.generation.number, job.state, told_ns, missing)
        known, since_ns = self._since.get(job.name, (None, 0))
        if known != waits_for:
            since_ns = now_ns
            self._since[job.name] = (waits_for, now_ns)
        waited_ns = now_ns - since_ns
        self.longest_ns[job.state] = max(waited_ns, self.longest_ns.get(job.state, 0))
        grace_ns = state.settings.startup_grace_ns if state.term > 1 else 0
        if waited_ns <= 2 * answer_patience_ns(state, job) + grace_ns:
            return
        able = [node for node in candidates(state, job) if node.name not in missing]
        enough = job.state is JobState.REPLANNING or place_members(state, job, able)[0]
        assert not enough, (job.name, job.state, missing, waited_ns / SECOND)

    def _for_nodes(self, cluster: SimulatedCluster, job: JobRecord) -> None:
        """Nodes that answer, with a launcher and nothing against them, are used if they suffice."""
        waits = (
            job.state in FOR_NODES and not cluster.controller.core.state.halted and not job.after
        )
        there: list[str] = []
        enough_ns = _CALLS * cluster.controller.settings.last_call_timeout_ns
        for node in cluster.fleet.nodes.values():
            if not waits or not _could_take_ranks(cluster, node, job):
                self._there_ns.pop((job.name, node.name), None)
                continue
            since_ns = self._there_ns.setdefault((job.name, node.name), cluster.time.now_ns)
            if cluster.time.now_ns - since_ns > enough_ns:
                there.append(node.name)
        told = f"{job.name} is {job.state.value} ({job.reason}), and {there} are there"
        assert len(there) < job.spec.nodes_min, told


def _could_take_ranks(cluster: SimulatedCluster, node: SimulatedNode, job: JobRecord) -> bool:
    """Return whether a node answers, runs nothing of the job, and is known for a good one."""
    state, local = cluster.controller.core.state, node.of(job.name)
    known = state.nodes.get(node.name)
    if (
        known is None
        or known.isolation.claims
        or known.state not in _FIT
        or known.spare_check.failed
    ):
        return False
    others = [
        one
        for one in cluster.jobs
        if one is not job and one.state in OCCUPYING and node.name in one.generation.members
    ]
    full = len(others) >= cluster.shape.devices if others else False
    obeys = all(until_ns <= cluster.time.now_ns for until_ns in node.ignores.values())
    free = local.launcher and not local.running and not node.outbox.waiting and not full
    return free and obeys and not node.delays_s and cluster.fleet.flows(node)
