"""Who makes the others of a job wait, on the terminal."""

from rich.console import Console

from everstep_cli.views.slowness import slowness_sheet
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin
from unit.cli.test_snapshot_commands import call


def _drawn(told: admin_pb2.Slowness) -> str:
    console = Console(width=160)
    with console.capture() as drawn:
        for part in slowness_sheet(told):
            console.print(part)
    return drawn.get()


def test_a_slow_rank_is_shown_with_what_its_node_has_found_and_what_is_done() -> None:
    line = admin_pb2.SlowLine(
        kind="rank", name="2", node="n1\x1b[31m", factor=1.3, first_step=40, share=0.97,
        evidence="its agent found GpuClocksLow",
    )  # fmt: skip
    told = admin_pb2.Slowness(
        sentence="Worker 2 takes longer", slow=[line], plan="everstep drain n1",
        ranks=4, telling=4, comparisons=30, lost_ratio=0.23,
    )  # fmt: skip
    drawn = _drawn(told)
    for word in ("rank 2", "1.30", "40", "97%", "GpuClocksLow", "everstep drain n1", "23.0%"):
        assert word in drawn
    assert "\x1b" not in drawn


def test_the_command_asks_for_the_job_that_is_named() -> None:
    admin = FakeAdmin()
    code, drawn = call("job", "demo", "slow", admin=admin)
    assert (code, admin.told[-1]) == (0, ("slowness", "demo"))
    assert "Nobody is slow" in drawn
    assert call("job", "slow", "demo")[0] == 2


def test_nobody_is_shown_with_what_could_not_be_seen() -> None:
    drawn = _drawn(admin_pb2.Slowness(sentence="Nobody is slow", blind=["3 ranks tell nothing"]))
    assert "Nobody is slow" in drawn
    assert "3 ranks tell nothing" in drawn
    assert "SINCE" not in drawn.upper()


def test_what_a_look_at_collectives_told_is_shown_below() -> None:
    late = admin_pb2.LateLine(rank=2, nominated=True, sentence="rank 2 comes last to 50 of 60\x1b")
    look = admin_pb2.CollectiveLook(
        sentence="Rank 2 comes last", late=[late], collectives=60, ranks=4, roles="roles by pp",
        blind=["a slow GPU does not show"], beside="both agree",
    )  # fmt: skip
    drawn = _drawn(admin_pb2.Slowness(sentence="Nobody is slow", collectives=look))
    for word in ("Rank 2 comes last", "50 of 60", "60 collectives, 4 ranks", "roles by pp"):
        assert word in drawn
    assert "a slow GPU does not show" in drawn
    assert "both agree" in drawn
    assert "\x1b" not in drawn
    assert "collectives" not in _drawn(admin_pb2.Slowness(sentence="Nobody is slow"))
