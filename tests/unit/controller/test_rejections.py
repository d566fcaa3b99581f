from everstep_controller.core.events import RecordRejected
from everstep_controller.records.rejections import ROW_NS, Rejection, Rejections


def bad(kind: str = "launcher_joined", error: str = "no processes", node: str = "a") -> Rejection:
    return Rejection(node, kind, "train", error)


def row(error: str, count: int) -> RecordRejected:
    return RecordRejected("a", "launcher_joined", "train", error, count)


def test_the_first_of_a_node_and_kind_is_a_row_at_once() -> None:
    rejections = Rejections()
    assert rejections.add(bad(), 0) == [row("no processes", 1)]
    assert len(rejections.add(bad(node="b"), 0)) == 1
    assert len(rejections.add(bad("progress"), 0)) == 1


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
