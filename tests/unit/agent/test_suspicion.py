"""Suspicion between neighbours."""

from everstep_agent.suspicion import Suspicion
from everstep_common.reports import PeerReport

_S = 10**9


def _watching(*peers: str) -> Suspicion:
    suspicion = Suspicion(_S)
    suspicion.watch(peers, 0)
    return suspicion


def _ticks(suspicion: Suspicion, first: int, last: int) -> list[tuple[int, PeerReport]]:
    return [(s, change) for s in range(first, last + 1) for change in suspicion.tick(s * _S)]


def test_a_peer_is_silent_after_three_misses_and_is_told_once() -> None:
    # Probes go out at 0, 1, 2 s; the tick at 3 s counts the third miss.
    assert _ticks(_watching("b"), 0, 60) == [(3, PeerReport("b", True, 3 * _S))]


def test_a_peer_that_answers_is_never_suspected() -> None:
    suspicion = _watching("b")
    for second in range(60):
        assert suspicion.tick(second * _S) == []
        assert suspicion.heard("b", second * _S + 1) == []


def test_a_silent_peer_that_answers_is_heard_again() -> None:
    suspicion = _watching("b")
    _ticks(suspicion, 0, 5)
    assert suspicion.silent(5 * _S) == [PeerReport("b", True, 5 * _S)]
    assert suspicion.heard("b", 6 * _S) == [PeerReport("b", False, 6 * _S)]
    assert suspicion.silent(6 * _S) == []


def test_who_hears_none_of_its_peers_is_cut_off_itself() -> None:
    assert not Suspicion(_S).hears_nobody()
    suspicion = _watching("b", "c")
    _ticks(suspicion, 0, 2)
    suspicion.heard("c", 2 * _S + 1)
    _ticks(suspicion, 3, 4)
    assert not suspicion.hears_nobody(), "one of two is heard"
    _ticks(suspicion, 5, 6)
    assert suspicion.hears_nobody()
    suspicion.heard("b", 7 * _S)
    assert not suspicion.hears_nobody()


def test_a_node_that_stood_still_itself_suspects_nobody() -> None:
    suspicion = _watching("b")
    for second in (0, 100, 200, 300):
        assert suspicion.tick(second * _S) == []


def test_a_new_list_keeps_what_is_known_of_peers_that_stay() -> None:
    suspicion = _watching("b", "c")
    _ticks(suspicion, 0, 3)
    suspicion.watch(["b", "d"], 3 * _S)
    assert [change.peer for change in suspicion.silent(3 * _S)] == ["b"]


def test_an_answer_of_somebody_who_is_not_watched_is_ignored() -> None:
    assert _watching("b").heard("x", 1) == []
