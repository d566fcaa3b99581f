"""Rounds of questions about silent nodes: whom to ask, and which answers are still open."""

from collections.abc import Iterator
from zlib import crc32

from everstep_controller.core.actions import ConfirmSilence, PingAgent
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.node_liveness import Confirmation
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import agent_identity
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# So many peers are asked about a silent node …
CONFIRMERS = 3
# … and so many domains are looked at for them, so that a question costs no more in a large fleet.
_PLACES_MAX = 32


def ask(turn: Reconciliation, node: NodeRecord) -> None:
    """Ask the agent itself and three peers, at once, what of a node answers."""
    asked = confirmers(turn.state, node) if node.spec.liveness_address else []
    if not asked and not node.liveness.connected:
        return
    number = f"{node.name}/silent/{turn.state.event_count}"
    node.liveness.confirmation = Confirmation(number, asked, turn.now_ns)
    for name in asked:
        turn.state.nodes[name].liveness.questions.append(node.name)
    if node.liveness.connected:
        turn.order(ping_order(node))
    turn.order(*(confirmation_order(node, name) for name in asked))
    turn.set_timer(f"{TimerKind.CONFIRM}/{node.name}", turn.state.settings.confirm_timeout_ns)


def is_over(turn: Turn, node: NodeRecord) -> bool:
    """Return whether nobody is waited for any more who was asked about a node."""
    waiting = node.liveness.confirmation
    if waiting is None or not turn.has_timer(TimerKind.CONFIRM, node.name):
        return True
    return not node.liveness.connected and len(waiting.verdicts) == len(waiting.asked)


def end(turn: Turn, node: NodeRecord) -> None:
    """Ask nobody any more what of a node answers."""
    waiting, node.liveness.confirmation = node.liveness.confirmation, None
    for peer in waiting.asked if waiting is not None else ():
        drop_question(turn.state, peer, node.name)
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")


def drop_question(state: State, peer: str, silent: str) -> None:
    """Expect no answer of a peer any more."""
    asked = state.nodes.get(peer)
    if asked is not None and silent in asked.liveness.questions:
        asked.liveness.questions.remove(silent)


def unanswered_questions(state: State, node: NodeRecord) -> Iterator[ConfirmSilence | PingAgent]:
    """Yield what a node was asked about silent peers, and of itself, and has not answered."""
    for silent in node.liveness.questions:
        yield confirmation_order(state.nodes[silent], node.name)
    if node.liveness.confirmation is not None and node.liveness.connected:
        yield ping_order(node)
    if (
        node.identity.contender is not None
        and node.identity.contender.asked
        and node.liveness.connected
    ):
        yield agent_identity.ping_order(node, node.identity.contender)


def confirmation_order(silent: NodeRecord, node: str) -> ConfirmSilence:
    """Return the question to a node about a silent peer."""
    return ConfirmSilence(
        id=silent.liveness.confirmation.id if silent.liveness.confirmation else "",
        node=node,
        reason=f"{silent.name} is silent",
        peer=silent.name,
        peer_address=silent.spec.liveness_address,
        peer_bulk_address=silent.spec.bulk_address,
    )


def ping_order(node: NodeRecord) -> PingAgent:
    """Return the question to an agent whether its loop goes round."""
    number = node.liveness.confirmation.id if node.liveness.confirmation else ""
    return PingAgent(id=number, node=node.name, reason=f"peers do not hear {node.name}")


# --- whom to ask ---------------------------------------------------------------------------------


def confirmers(state: State, node: NodeRecord) -> list[str]:
    """Return three nodes that are heard, as if at random, in as many domains as possible.

    Those in domains far from the node's come first, those in the controller's last. The choice
    follows from its name and the number of the event, so a replay makes the same.
    """
    seed = crc32(f"{node.name}/{state.event_count}".encode())
    found: list[str] = []
    for domains in _domains_by_preference(state, node.spec.domain, seed):
        for offset in range(CONFIRMERS):
            for domain in domains:
                names = state.index.heard.of(domain)
                name = names[(seed + offset) % len(names)]
                if name != node.name and name not in found:
                    found.append(name)
                if len(found) == CONFIRMERS:
                    return found
    return found


def controller_domain(state: State) -> str:
    """Return the failure domain of the controller: that of the agent on its machine, or as set.

    Where several agents run there, machines are played, and none of their domains is its own.
    """
    if len(state.index.on_its_machine) == 1:
        return independent_domain(state, state.index.on_its_machine[0])
    return state.settings.controller_domain


def independent_domain(state: State, name: str) -> str:
    """Return what fails with a node: its domain, or where none is known the node alone."""
    return state.nodes[name].spec.domain or name


def witnesses(state: State, node: NodeRecord) -> int:
    """Return how many peers have to say that a node is silent: three, where there are so many.

    All nodes count from which something is expected, also those that are silent themselves: where
    many are, the fault may be here.
    """
    near = len(state.index.expected.of(node.spec.domain))
    own = int(state.index.is_expected(node.name))
    far = state.index.expected.total - near
    return min(CONFIRMERS, far or near - own)


def _domains_by_preference(state: State, own: str, seed: int) -> Iterator[list[str]]:
    """Yield domains with nodes that are heard: far ones, those of the same pod, its own, ours."""
    known, ours = state.index.heard.keys, controller_domain(state)
    first = seed % len(known) if known else 0
    some = [*known[first : first + _PLACES_MAX], *known[: min(first, _PLACES_MAX)]][:_PLACES_MAX]
    pod = own.partition("/")[0]
    far: list[str] = []
    near: list[str] = []
    for domain in some:
        if domain in (own, ours):
            continue
        (near if domain.partition("/")[0] == pod else far).append(domain)
    # Peers in a second domain are worth more than more of them in the first.
    yield far if len(far) > 1 else [*far, *near]
    yield near
    yield [own] if own in state.index.heard and own != ours else []
    yield [ours] if ours in state.index.heard else []
