"""Restores as the demo reads them in the logs of agents."""

from everstep_cli.demo.cluster import restores_in
from everstep_cli.demo.proofs import DemoRestore

_OWN = "12:00:01 INFO job demo: generation 2: rank 1 restored step 40 from own memory\n"
_PEERS = "job demo: generation 3: rank 2 restored step 41 from own memory, peer memory of node-1\n"
_AHEAD = "job demo: prefetched step 40 of rank 1 from peer memory of node-4\n"


def test_own_memory_is_that_of_the_node() -> None:
    assert list(restores_in("node-2", _OWN)) == [
        DemoRestore(node="node-2", generation=2, rank=1, step=40, sources=("node-2",))
    ]


def test_peers_are_named() -> None:
    (restore,) = restores_in("node-3", _PEERS)
    assert restore.sources == ("node-1", "node-3")


def test_what_was_fetched_ahead_came_from_the_peer() -> None:
    (restore,) = restores_in("node-5", _AHEAD + _OWN)
    assert restore.sources == ("node-4",)


def test_another_rank_fetched_ahead_changes_nothing() -> None:
    (restore,) = restores_in("node-5", _AHEAD.replace("rank 1", "rank 7") + _OWN)
    assert restore.sources == ("node-5",)


def test_other_lines_tell_of_no_restore() -> None:
    assert list(restores_in("node-1", "job demo: generation 2 started\n")) == []
