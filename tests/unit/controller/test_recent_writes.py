"""What a writer keeps of its newest transactions, to bring them to a new leader of the database."""

from everstep_controller.journal.checksums import Chain
from everstep_controller.journal.port import StoredEvent
from everstep_controller.journal.postgres.pending_writes import FACT, PendingWrites
from everstep_controller.journal.postgres.recent_writes import Position, RecentWrites, size_of

S = 10**9


def at(writes: int) -> Position:
    return Position(writes, Chain(10 * writes, b"%d" % writes, 0, b""))


def written(size: int = 1) -> PendingWrites:
    return PendingWrites(events=[(StoredEvent(1, 1, "k", b"x" * size), b"link")])


def kept(recent: RecentWrites, *counts: int, every_ns: int = S) -> None:
    for count in counts:
        recent.note(at(count - 1), at(count), written(), count * every_ns)


def missing(recent: RecentWrites, there: Position) -> list[int]:
    return [one.after.writes for one in recent.missing(there)]


def test_what_a_journal_lacks_is_all_that_came_after() -> None:
    recent = RecentWrites()
    assert missing(recent, at(0)) == []
    kept(recent, 5, 6, 7)
    assert missing(recent, at(4)) == [5, 6, 7]
    assert missing(recent, at(6)) == [7]
    assert missing(recent, at(7)) == []


def test_a_journal_that_was_never_there_is_given_nothing() -> None:
    recent = RecentWrites()
    kept(recent, 5, 6, 7)
    assert missing(recent, at(3)) == []
    assert missing(recent, Position(5, at(6).chain)) == []
    assert missing(recent, at(8)) == []


def test_old_ones_and_too_many_are_forgotten_from_the_front() -> None:
    recent = RecentWrites(kept_ns=3 * S)
    kept(recent, *range(1, 9))
    assert missing(recent, at(4)) == [5, 6, 7, 8]
    assert missing(recent, at(3)) == []
    few = RecentWrites(kept_bytes=2)
    kept(few, 1, 2, 3, every_ns=0)
    assert missing(few, at(1)) == [2, 3]
    assert missing(few, at(0)) == []


def test_one_that_is_too_large_is_not_kept_and_what_follows_is() -> None:
    recent = RecentWrites(kept_bytes=100)
    kept(recent, 1)
    recent.note(at(1), at(2), written(1000), S)
    assert missing(recent, at(1)) == []
    kept(recent, 3)
    assert missing(recent, at(2)) == [3]


def test_its_size_is_about_that_of_its_rows() -> None:
    one = written(100)
    one.put(FACT, "name", b"y" * 50)
    assert 150 <= size_of(one) <= 200
