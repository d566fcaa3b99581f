"""Whether commits of a journal are on a standby: what is judged of it, and who hears of it."""

import asyncio
from collections.abc import Sequence

import pytest

from everstep_controller.journal.port import JournalAccessError
from everstep_controller.journal.synchrony import (
    PATIENCE_NS,
    Replication,
    Standby,
    Synchrony,
    WantedSynchrony,
    judge,
    observe,
)
from everstep_controller.metrics.synchrony_metrics import synchrony_metrics
from everstep_controller.watches.synchrony_watch import SynchronyMemory, SynchronyWatch

S = 10**9
AUTO, ALWAYS, NEVER = WantedSynchrony.AUTO, WantedSynchrony.ALWAYS, WantedSynchrony.NEVER
BESIDE = Standby("n2", "streaming", "sync", 0, 0.001)
ON_TWO = Replication("10.0.0.1:5432", "n2", "on", (BESIDE,))
ON_ONE = Replication("10.0.0.1:5432", "", "on", (Standby("n2", "streaming", "async", 3_000_000),))
LOCAL = Replication("10.0.0.1:5432", "n2", "local", (BESIDE,))


def seen(told: Replication, for_ns: int = PATIENCE_NS) -> Synchrony:
    return Synchrony(told, S, S + for_ns)


@pytest.mark.parametrize(
    ("commit", "synchronous"),
    [("on", True), ("remote_apply", True), ("remote_write", True), ("local", False)],
)
def test_a_commit_is_synchronous_where_it_waits_for_somebody(
    commit: str, synchronous: bool
) -> None:
    assert Replication("", "ANY 1 (a, b)", commit).is_synchronous is synchronous
    assert not Replication("", " ", commit).is_synchronous


@pytest.mark.parametrize(
    ("wanted", "was", "is_told"),
    [
        (AUTO, True, True),
        (AUTO, False, False),
        (ALWAYS, False, True),
        (NEVER, True, False),
    ],
)
def test_one_server_alone_is_told_where_more_are_expected(
    wanted: WantedSynchrony, was: bool, is_told: bool
) -> None:
    assert bool(judge(seen(ON_ONE), wanted, was_synchronous=was)) is is_told
    assert judge(seen(ON_TWO), wanted, was_synchronous=was) is None
    assert judge(None, wanted, was_synchronous=was) is None


def test_a_switchover_is_waited_for() -> None:
    assert judge(seen(ON_ONE, PATIENCE_NS - 1), AUTO, was_synchronous=True) is None


def test_why_it_is_and_what_stands_beside_it_is_said() -> None:
    lost = judge(seen(ON_ONE), AUTO, was_synchronous=True)
    assert lost is not None
    assert "on one server alone (synchronous_standby_names is empty)" in lost.sentence
    assert (lost.standbys, lost.since_ns) == ("standbys: n2 (async, 3.0 MB behind)", S)
    local = judge(seen(LOCAL), AUTO, was_synchronous=True)
    assert local is not None
    assert "synchronous_commit is 'local'" in local.sentence
    alone = judge(seen(Replication("", "", "on")), ALWAYS, was_synchronous=False)
    assert alone is not None
    assert alone.standbys == "no standby is connected"
    assert str(Standby("n2")) == "n2 (state not shown)"


def test_since_when_it_is_so_is_kept_until_it_changes() -> None:
    first = observe(None, ON_TWO, S)
    again = observe(first, LOCAL, 2 * S)
    assert (first.since_ns, again.since_ns) == (S, 2 * S)
    assert observe(again, ON_ONE, 3 * S).since_ns == 2 * S
    assert observe(again, ON_ONE, 3 * S).read_ns == 3 * S


class Watched:
    """A watch whose answers and clock a test gives."""

    def __init__(self, wanted: WantedSynchrony = AUTO, *, was: bool = False) -> None:
        self.now_ns = 0
        self.kept: list[bool] = []
        self.lines: list[str] = []
        self._told: Replication | None = None
        self.watch = SynchronyWatch(
            self._answer,
            wanted,
            SynchronyMemory(was, self.kept.append),
            lambda: self.now_ns,
            lambda _, reason, __: self.lines.append(reason),
        )

    async def _answer(self) -> Replication | None:
        if self._told is None:
            raise JournalAccessError("the database does not answer")
        return self._told

    def look(self, told: Sequence[Replication | None]) -> "Watched":
        """Ask every 5 s, and be answered so; None: not at all."""
        for self._told in told:
            self.now_ns += 5 * S
            asyncio.run(self.watch.look())
        return self


def test_a_loss_is_told_once_and_its_end_too() -> None:
    watched = Watched().look([ON_TWO, ON_ONE, ON_ONE])
    assert (watched.lines, watched.watch.lost()) == ([], None)
    watched.look([ON_ONE, ON_ONE])
    assert watched.lines == ["JournalUnreplicated"]
    assert watched.watch.lost() is not None
    watched.look([ON_TWO, ON_TWO])
    assert watched.lines == ["JournalUnreplicated", "JournalUnreplicatedCleared"]
    assert watched.watch.lost() is None
    assert watched.kept == [True]


def test_a_database_that_does_not_answer_leaves_what_is_known() -> None:
    watched = Watched(was=True).look([ON_ONE, ON_ONE, ON_ONE, None])
    assert watched.watch.lost() is not None
    assert watched.watch.newest is not None
    assert watched.watch.newest.read_ns == 15 * S


def test_what_there_once_was_is_known_after_a_restart_and_forgotten_by_an_order() -> None:
    assert Watched(was=True).look([ON_ONE] * 3).lines == ["JournalUnreplicated"]
    assert Watched(was=False).look([ON_ONE] * 3).lines == []
    given_up = Watched(NEVER, was=True).look([ON_ONE] * 3)
    assert (given_up.lines, given_up.kept) == ([], [False])


def test_what_is_known_is_in_the_metrics_and_nothing_before() -> None:
    def samples(known: Synchrony | None) -> dict[tuple[str, ...], float]:
        return {
            (one.name.removeprefix("everstep_controller_journal_"), *one.labels.values()): one.value
            for metric in synchrony_metrics(known)
            for one in metric.samples
        }

    assert samples(None) == {}
    assert samples(seen(ON_ONE)) == {
        ("synchronous",): 0,
        ("standbys", "async"): 1,
        ("standby_lag_bytes", "n2"): 3_000_000,
    }
    assert samples(seen(Replication("", "n2", "on", (Standby("n2"),)))) == {
        ("synchronous",): 1,
        ("standbys", ""): 1,
    }
