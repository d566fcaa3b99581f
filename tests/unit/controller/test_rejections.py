from everstep_controller.core.events import RecordRejected
from everstep_controller.journal.codec import decode_event
from everstep_controller.records.rejections import KEYS_MAX, ROW_NS, Rejection, Rejections


def bad(
    kind: str = "launcher_joined",
    error: str = "no processes",
    node: str = "a",
    user: str = "",
) -> Rejection:
    return Rejection(node, kind, "train", error, user)


def row(error: str, count: int) -> RecordRejected:
    return RecordRejected("a", "launcher_joined", "train", error, count)


def test_the_first_of_a_node_and_kind_is_a_row_at_once() -> None:
    rejections = Rejections()
    assert rejections.add(bad(), 0) == [row("no processes", 1)]
    assert len(rejections.add(bad(node="b"), 0)) == 1
    assert len(rejections.add(bad("progress"), 0)) == 1


def test_each_user_has_a_row_of_their_own() -> None:
    rejections = Rejections()
    (first,) = rejections.add(bad(user="1000"), 0)
    (second,) = rejections.add(bad(user="1001"), 0)
    assert (first.user, second.user) == ("1000", "1001")
    rejections.add(bad(user="1001", error="again"), 1)
    assert [(one.user, one.error, one.count) for one in rejections.tick(ROW_NS)] == [
        ("1001", "again", 1)
    ]


def test_users_beyond_those_that_share_a_node_are_one_row_a_minute() -> None:
    rejections = Rejections()
    rows = [rejections.add(bad(user=str(user)), 0) for user in range(10_000)]
    told = [one for each in rows for one in each]
    assert len(told) == KEYS_MAX + 1
    assert (told[-1].kind, told[-1].user) == ("others", "")
    assert told[-1].error == f"launcher_joined of user {KEYS_MAX}: no processes"
    (others,) = rejections.tick(ROW_NS)
    assert others.count == 10_000 - KEYS_MAX - 1
    assert sum(one.count for one in [*told, others]) == 10_000
    # Another node has its own rows.
    assert [one.user for one in rejections.add(bad(node="b", user="7"), 0)] == ["7"]


def test_users_that_are_quiet_again_make_room_for_others() -> None:
    rejections = Rejections()
    for user in range(KEYS_MAX):
        rejections.add(bad(user=str(user)), 0)
    assert rejections.tick(ROW_NS) == []
    assert [one.user for one in rejections.add(bad(user="new"), ROW_NS + 1)] == ["new"]


def test_a_journal_from_before_users_were_noted_is_read() -> None:
    body = b'{"node":"a","kind":"launcher_joined","job":"train","error":"no processes","count":1}'
    assert decode_event("RecordRejected", body) == row("no processes", 1)


def test_those_after_it_are_one_row_when_the_minute_is_over_with_the_first_as_example() -> None:
    rejections = Rejections()
    rejections.add(bad(), 0)
    for error in ("second", "third", "fourth"):
        assert rejections.add(bad(error=error), 7) == []
    assert rejections.tick(ROW_NS - 1) == []
    assert rejections.tick(ROW_NS) == [row("second", 3)]
    assert rejections.add(bad(error="fifth"), ROW_NS + 1) == []
    assert rejections.tick(2 * ROW_NS - 1) == []
    assert rejections.tick(2 * ROW_NS) == [row("fifth", 1)]


def test_after_a_quiet_minute_the_next_is_a_row_at_once_again() -> None:
    rejections = Rejections()
    rejections.add(bad(), 0)
    assert rejections.tick(ROW_NS) == []
    assert rejections.add(bad(error="again"), ROW_NS + 1) == [row("again", 1)]


def test_a_stop_leaves_nothing_uncounted() -> None:
    rejections = Rejections()
    rejections.add(bad(), 0)
    rejections.add(bad(error="second"), 1)
    assert rejections.flush() == [row("second", 1)]
    assert rejections.flush() == []


def test_a_row_that_could_not_be_written_is_counted_with_the_next() -> None:
    rejections = Rejections()
    (first,) = rejections.add(bad(), 0)
    rejections.add(bad(error="second"), 1)
    rejections.not_written(first)
    assert rejections.tick(ROW_NS) == [row("second", 2)]


def test_a_sentence_is_bounded_and_steers_no_terminal() -> None:
    (event,) = Rejections().add(bad(error="\x1b[2J" + "ü" * 1000), 0)
    assert len(event.error.encode()) <= 512
    assert event.error.isprintable()
    assert event.error.endswith("ü")
