"""Numbers, sizes and names as people read them."""

import pytest

from everstep_cli.views import formatting

_SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (200, "3 m 20 s"), (7260, "2 h 1 m"), (183_600, "2 d 3 h")],
)
def test_a_duration_has_at_most_two_units(seconds: int, shown: str) -> None:
    assert formatting.duration(seconds * _SECOND) == shown


def test_a_clock_that_runs_ahead_shows_no_negative_age() -> None:
    assert formatting.duration(-5) == "0 s"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1536, "1.5 KiB"), (24 << 30, "24 GiB"), (3 << 70, "3145728 PiB")],
)
def test_a_size_is_in_binary_units(count: int, shown: str) -> None:
    assert formatting.size(count) == shown


@pytest.mark.parametrize(
    ("nodes", "shown"),
    [
        ([], "-"),
        (["a"], "a"),
        (["node-1", "node-2"], "node-[1-2]"),
        (["node-1", "node-2", "node-3", "node-5"], "node-[1-3,5]"),
        (["node-3", "login", "node-1"], "node-3,login,node-1"),
        (["gpu-099", "gpu-100", "gpu-101"], "gpu-[099-101]"),
        (["gpu-9", "gpu-10", "gpu-11"], "gpu-[9-11]"),
        (["gpu-09", "gpu-010"], "gpu-[09,010]"),
        (["x", "y", "z"], "x,y,z"),
    ],
)
def test_node_names_are_folded_as_slurm_folds_them(nodes: list[str], shown: str) -> None:
    assert formatting.names(nodes) == shown


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [(1, "restart", "1 restart"), (2, "restart", "2 restarts"), (2, "process", "2 processes")],
)
def test_nouns_follow_their_number(number: int, noun: str, shown: str) -> None:
    assert formatting.count(number, noun) == shown


def test_a_link_of_unknown_speed_shows_a_dash() -> None:
    assert formatting.speed(0) == "-"
    assert formatting.speed(400_000_000_000) == "400 Gbit/s"
    assert formatting.speed(100_000_000) == "100 Mbit/s"
