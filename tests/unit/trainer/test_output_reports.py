"""What a launcher tells its agent of the output: the newest lines, no more than is read."""

from everstep.launch.output.output_reports import OutputReports
from everstep_common.launcher_messages import OUTPUT_LINE_MAX, OUTPUT_LINES_MAX, OutputSeen


class Told:
    """A clock that the test turns, and what was told."""

    def __init__(self, ranks: int = 1) -> None:
        self.now_s = 100.0
        self.messages: list[OutputSeen] = []
        self.reports = OutputReports(self._tell, lambda: self.now_s)
        self.reports.begin(2, ranks)

    def _tell(self, message: object) -> None:
        assert isinstance(message, OutputSeen)
        self.messages.append(message)


def test_lines_of_a_second_go_together_by_rank() -> None:
    told = Told()
    told.now_s += 2
    told.reports.add(3, b"first")
    told.reports.advance()
    told.reports.add(3, b"second")
    told.reports.add(4, b"other")
    told.reports.add(3, b"third")
    told.reports.advance()
    assert told.messages == [OutputSeen(2, 3, ("first",))]
    assert told.reports.due_in_s() == 1.0
    told.now_s += 1
    told.reports.advance()
    assert told.messages[1:] == [
        OutputSeen(2, 3, ("second", "third")),
        OutputSeen(2, 4, ("other",)),
    ]
    assert told.reports.due_in_s() is None


def test_the_last_lines_are_told_before_the_end_that_follows_them() -> None:
    told = Told()
    told.reports.add(0, b"Traceback")
    told.reports.flush()
    assert told.messages == [OutputSeen(2, 0, ("Traceback",))]


def test_colours_and_tabs_of_a_line_are_gone_and_what_is_no_text_is_told_as_such() -> None:
    told = Told()
    told.reports.add(0, b"\x1b[31mloss\x1b[0m\t1.5 \xff  ")
    told.reports.flush()
    assert told.messages[0].lines == ("loss    1.5 �",)


def test_of_more_than_is_read_the_newest_lines_are_told_and_how_many_are_not() -> None:
    told = Told(ranks=64)
    for number in range(5000):
        told.reports.add(0, b"line %d" % number)
    told.reports.flush()
    (message,) = told.messages
    assert message.lines[-1] == "line 4999"
    assert message.lines[0] == f"… {5000 - len(message.lines) + 1} lines were left out here …"
    assert sum(map(len, message.lines)) < 2000
    assert len(message.lines) <= OUTPUT_LINES_MAX


def test_a_line_without_end_is_cut_and_empty_lines_without_number_are_bounded() -> None:
    told = Told()
    told.reports.add(0, b"x" * 10_000_000)
    for _ in range(100_000):
        told.reports.add(1, b"")
    told.reports.flush()
    assert len(told.messages[0].lines[0]) == OUTPUT_LINE_MAX
    assert len(told.messages[1].lines) <= OUTPUT_LINES_MAX


def test_what_an_older_generation_wrote_is_told_as_its_own() -> None:
    told = Told()
    told.reports.add(0, b"old")
    told.reports.begin(3, 1)
    told.reports.add(0, b"new")
    told.reports.flush()
    assert [(one.generation, one.lines) for one in told.messages] == [(2, ("old",)), (3, ("new",))]
