"""Who makes the others of a job wait, on the terminal."""

from collections.abc import Iterable

from rich.console import Console, RenderableType

from everstep_cli.views.slowness import slowness_sheet
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin
from unit.cli.test_snapshot_commands import call


def drawn(parts: Iterable[RenderableType]) -> str:
    """Return what is shown on a wide terminal."""
    console = Console(width=160)
    with console.capture() as shown:
        for part in parts:
            console.print(part)
    return shown.get()


def _drawn(told: admin_pb2.Slowness) -> str:
    return drawn(slowness_sheet(told))


def test_a_slow_rank_is_shown_with_what_its_node_has_found_and_what_is_done() -> None:
    line = admin_pb2.SlowLine(
        kind="rank", name="2", node="n1\x1b[31m", factor=1.3, first_step=40, share=0.97,
        evidence="its agent found GpuClocksLow",
    )  # fmt: skip
    told = admin_pb2.Slowness(
        sentence="Worker 2 takes longer", slow=[line], plan="everstep drain n1",
        ranks=4, telling=4, comparisons=30, lost_ratio=0.23,
    )  # fmt: skip
    shown = _drawn(told)
    for word in ("rank 2", "1.30", "40", "97%", "GpuClocksLow", "everstep drain n1", "23.0%"):
        assert word in shown
    assert "\x1b" not in shown


def test_the_command_asks_for_the_job_that_is_named() -> None:
    admin = FakeAdmin()
    code, shown = call("job", "demo", "slow", admin=admin)
    assert (code, admin.told[-1]) == (0, ("slowness", "demo"))
    assert "Nobody is slow" in shown
    assert call("job", "slow", "demo")[0] == 2


def test_of_what_was_never_compared_no_loss_is_shown() -> None:
    shown = _drawn(admin_pb2.Slowness(sentence="Nobody can be judged", ranks=4))
    assert "lost" not in shown
    assert "compared" not in shown
    assert "0.0%" in _drawn(admin_pb2.Slowness(sentence="Nobody is slow", comparisons=30))


def test_who_comes_last_by_one_look_is_shown_once_and_with_what_to_do() -> None:
    sentence = "Rank 2 (n1) comes last to 50 of 60"
    late = admin_pb2.LateLine(rank=2, node="n1", nominated=True, sentence=f"r{sentence[1:]}")
    look = admin_pb2.CollectiveLook(sentence=sentence, late=[late], collectives=60, ranks=4)
    shown = _drawn(admin_pb2.Slowness(sentence=sentence, collectives=look))
    assert shown.count("50 of 60") == 1
    assert "ask again in some minutes" in shown
    assert "everstep drain n1 --reason TEXT" in shown
    assert "ago" not in shown
    old = admin_pb2.CollectiveLook(sentence=sentence, collectives=60, ranks=4, age_ns=600 * 10**9)
    assert "4 ranks, 10 m" in _drawn(admin_pb2.Slowness(sentence=sentence, collectives=old))
    late.nominated = False
    told = admin_pb2.CollectiveLook(sentence=sentence, late=[late], collectives=60, ranks=4)
    assert "drain" not in _drawn(admin_pb2.Slowness(sentence=sentence, collectives=told))


def test_nobody_is_shown_with_what_could_not_be_seen() -> None:
    shown = _drawn(admin_pb2.Slowness(sentence="Nobody is slow", blind=["3 ranks tell nothing"]))
    assert "Nobody is slow" in shown
    assert "3 ranks tell nothing" in shown
    assert "SINCE" not in shown.upper()


def test_what_a_look_at_collectives_told_is_shown_below() -> None:
    late = admin_pb2.LateLine(rank=2, nominated=True, sentence="rank 2 comes last to 50 of 60\x1b")
    look = admin_pb2.CollectiveLook(
        sentence="Rank 2 comes last", late=[late], collectives=60, ranks=4, roles="roles by pp",
        blind=["a slow GPU does not show"], beside="both agree",
    )  # fmt: skip
    shown = _drawn(admin_pb2.Slowness(sentence="Nobody is slow", collectives=look))
    for word in ("Rank 2 comes last", "50 of 60", "60 collectives, 4 ranks", "roles by pp"):
        assert word in shown
    assert "a slow GPU does not show" in shown
    assert "both agree" in shown
    assert "\x1b" not in shown
    assert "collectives" not in _drawn(admin_pb2.Slowness(sentence="Nobody is slow"))
