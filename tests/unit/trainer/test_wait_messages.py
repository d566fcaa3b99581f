"""What a launcher says while nothing runs: once, in the right order, and again rarely."""

from dataclasses import dataclass, field

from everstep.launch.wait_messages import WaitMessages


@dataclass
class _Terminal:
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def words(self) -> WaitMessages:
        return WaitMessages(self.said.append, lambda: self.now)


def test_who_is_refused_has_not_joined() -> None:
    terminal = _Terminal()
    words = terminal.words()
    words.joined("joined on n1")
    words.heard(refused=True)
    terminal.now = 99.0
    words.say_due()
    assert terminal.said == []


def test_who_is_heard_of_has_joined_before_that() -> None:
    terminal = _Terminal()
    words = terminal.words()
    words.joined("joined on n1")
    assert terminal.said == []
    words.heard()
    words.waits("1 of 2 nodes have joined")
    assert terminal.said == ["joined on n1", "1 of 2 nodes have joined"]


def test_where_no_controller_answers_it_is_said_after_a_while() -> None:
    terminal = _Terminal()
    words = terminal.words()
    words.joined("joined on n1")
    due_s = words.due_in_s()
    assert due_s is not None
    terminal.now = due_s
    words.say_due()
    words.heard()
    assert terminal.said == ["joined on n1"]
    assert words.due_in_s() is None


def test_a_reason_to_wait_is_said_again_rarely_until_ranks_start() -> None:
    terminal = _Terminal()
    words = terminal.words()
    words.waits("maintenance m-1")
    for _ in range(4):
        due_s = words.due_in_s()
        assert due_s is not None
        terminal.now += due_s
        words.say_due()
    again = [f"still waiting, for {minutes} min: maintenance m-1" for minutes in (10, 30, 70, 130)]
    assert terminal.said == ["maintenance m-1", *again]
    words.end_wait()
    assert words.due_in_s() is None


def test_another_reason_counts_from_its_own_beginning() -> None:
    terminal = _Terminal()
    words = terminal.words()
    words.waits("one")
    terminal.now = 500.0
    words.waits("two")
    terminal.now = 1100.0
    words.say_due()
    assert terminal.said == ["one", "two", "still waiting, for 10 min: two"]
