"""Scenarios of pods that enrol: who gets a certificate of which node, and what others are told."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.enrolment import enrol_pod
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.rights import PodEnrolment
from everstep_proto.enrolment.validity import validity
from fakes.agent_stream import agent_stream
from integration.enrolment_world import Node, World, world
from kubernetes_suite.cluster import PATIENCE_S, Cluster, until

ACCOUNT, AUTHORITY = "everstep/everstep-agent", "everstep/everstep-authority"
_MORE = """\
kubernetes_accounts = ["{account}"]
kubernetes_authority = "{authority}"

[drivers.kubernetes]
access = "{kubeconfig}"
"""


@dataclass(frozen=True)
class PodsWorld:
    """A cluster with a controller in it, at which pods enrol."""

    cluster: Cluster
    there: World

    def pod(self, name: str, node: str, account: str = ACCOUNT) -> tuple[str, str]:
        """Make a pod; return its token as its kubelet projects it, and its uid."""
        human, (namespace, _, short) = self.cluster.human, account.partition("/")
        human.make_account(namespace, short)
        uid = human.make_pod(namespace, name, node, short)
        return human.token(account, "everstep", name, uid), uid

    def agent(self, node: str, folder: str = "") -> Node:
        """Return an agent that has no certificate."""
        return self.there.node(node, folder)

    async def enrol(self, agent: Node, token: str) -> str:
        """Have an agent ask once, with its pod's token; return why it was refused, or ""."""
        (agent.folder / "token").write_text(token)
        authority = self.there.folder / "var" / "tls" / "ca.pem"
        words = [str(agent.files.folder), agent.name, self.there.address, "", str(authority)]

        def run() -> str:
            said = io.StringIO()
            with redirect_stderr(said):
                code = enrol_pod.main([*words, str(agent.folder / "token")])
            assert bool(code) == bool(said.getvalue())
            # Its last line: lines of the log may come before it.
            return said.getvalue().strip().rpartition("\n")[2]

        return await asyncio.to_thread(run)


PodScenario = Callable[[PodsWorld], Coroutine[None, None, None]]


@asynccontextmanager
async def pods_world(cluster: Cluster, folder: Path) -> AsyncIterator[PodsWorld]:
    """Run a controller in a cluster, with the rights that its configuration prints."""
    driver = KubernetesDriverConfig(access=str(cluster.kubeconfig))
    enrolment = PodEnrolment((ACCOUNT,), AUTHORITY)
    cluster.human.make_account("everstep", "everstep-agent")
    cluster.human.make_config_map(*AUTHORITY.split("/"))
    cluster.human.apply(driver.rbac("everstep", enrolment=enrolment))
    more = _MORE.format(account=ACCOUNT, authority=AUTHORITY, kubeconfig=cluster.kubeconfig)
    async with world(folder, more=more) as there:
        made = PodsWorld(cluster, there)
        await _allowed(made)
        yield made


async def _allowed(made: PodsWorld) -> None:
    """Wait until the authorizer has learned of the roles, which takes it a moment."""
    agent = made.agent("nobody")
    async with asyncio.timeout(PATIENCE_S):
        while "(403)" in await made.enrol(agent, "no-token"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def a_pod_enrols_the_node_that_it_runs_on(made: PodsWorld) -> None:
    name = f"{made.cluster.prefix}-1.rack"
    token, _ = made.pod(f"{made.cluster.prefix}-agent-1", name)
    agent = made.agent(name)
    assert await made.enrol(agent, token) == ""
    assert validity(agent.files.own.read_bytes()).serial == made.there.serial(name)
    async with agent_stream(made.there.controller.port, name, agent.tls) as stream:
        await stream.hello()
    # Its answer was lost: the key of before, which still waits, gets another certificate.
    assert await made.there.renew(agent) == 0


async def the_authority_is_where_pods_find_it(made: PodsWorld) -> None:
    text = (made.there.folder / "var/tls/ca.pem").read_text()
    place = AUTHORITY.split("/")
    await until(lambda: made.cluster.human.config_map(*place).get("ca.pem") == text)


async def a_forged_name_is_refused(made: PodsWorld) -> None:
    token, _ = made.pod(f"{made.cluster.prefix}-forger", "gpu-7")
    agent = made.agent("gpu-8")
    said = await made.enrol(agent, token)
    assert "runs on gpu-7 and asks for a certificate of 'gpu-8'" in said
    assert not agent.files.own.exists()
    assert "gpu-8" not in made.there.controller.runtime.state.enrolment.certificates


async def another_audience_is_refused(made: PodsWorld) -> None:
    name = f"{made.cluster.prefix}-audience"
    _, uid = made.pod(name, "gpu-9")
    token = made.cluster.human.token(ACCOUNT, "vault", name, uid)
    said = await made.enrol(made.agent("gpu-9"), token)
    assert "does not accept this token for the audience 'everstep'" in said


async def pods_of_other_accounts_and_namespaces_are_refused(made: PodsWorld) -> None:
    for account in ("everstep/other", "team/everstep-agent"):
        token, _ = made.pod(f"{made.cluster.prefix}-other", "gpu-10", account)
        said = await made.enrol(made.agent("gpu-10", account.replace("/", "-")), token)
        assert f"pods of the service account {account} do not enrol here, but those of" in said


async def a_pod_that_is_gone_is_refused(made: PodsWorld) -> None:
    name = f"{made.cluster.prefix}-gone"
    token, _ = made.pod(name, "gpu-11")
    await asyncio.to_thread(made.cluster.human.delete_pod, "everstep", name)
    said = await made.enrol(made.agent("gpu-11"), token)
    assert "has expired, or its pod is gone" in said
    # Nor does it count for another pod of that name.
    made.pod(name, "gpu-11")
    assert "has expired, or its pod is gone" in await made.enrol(
        made.agent("gpu-11", "gpu-11-b"), token
    )


async def a_token_of_no_pod_is_refused(made: PodsWorld) -> None:
    token = made.cluster.human.token(ACCOUNT, "everstep")
    said = await made.enrol(made.agent("gpu-12"), token)
    assert f"this token of {ACCOUNT} is for no pod" in said


async def a_token_that_is_shown_again_by_another_key_is_refused(made: PodsWorld) -> None:
    name = f"{made.cluster.prefix}-again"
    token, _ = made.pod(name, "gpu-13")
    assert await made.enrol(made.agent("gpu-13"), token) == ""
    thief = made.agent("gpu-13", "thief")
    said = await made.enrol(thief, token)
    assert f"pod everstep/{name} has enrolled gpu-13 already, with another key" in said
    assert f"kubectl delete pod -n everstep {name}" in said
    # The successor of the pod has another uid, and its node's data may be lost.
    made.cluster.human.delete_pod("everstep", name)
    token, _ = made.pod(f"{name}-2", "gpu-13")
    before = made.there.serial("gpu-13")
    assert await made.enrol(made.agent("gpu-13", "anew"), token) == ""
    assert before in made.there.controller.runtime.state.enrolment.revoked_serials


async def a_node_that_was_revoked_stays_out_until_somebody_makes_a_token(made: PodsWorld) -> None:
    token, _ = made.pod(f"{made.cluster.prefix}-revoked", "gpu-14")
    assert await made.enrol(made.agent("gpu-14"), token) == ""
    await made.there.revoke(node="gpu-14")
    successor, _ = made.pod(f"{made.cluster.prefix}-revoked-2", "gpu-14")
    said = await made.enrol(made.agent("gpu-14", "gpu-14-b"), successor)
    assert "the certificate of gpu-14 was revoked at" in said
    assert "everstep tokens make --node gpu-14" in said
    await made.there.join(made.agent("gpu-14", "gpu-14-c"), await made.there.token("gpu-14"))
    assert await made.enrol(made.agent("gpu-14", "gpu-14-d"), successor) == ""


POD_SCENARIOS: tuple[PodScenario, ...] = (
    a_pod_enrols_the_node_that_it_runs_on,
    the_authority_is_where_pods_find_it,
    a_forged_name_is_refused,
    another_audience_is_refused,
    pods_of_other_accounts_and_namespaces_are_refused,
    a_pod_that_is_gone_is_refused,
    a_token_of_no_pod_is_refused,
    a_token_that_is_shown_again_by_another_key_is_refused,
    a_node_that_was_revoked_stays_out_until_somebody_makes_a_token,
)
