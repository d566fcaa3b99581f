from everstep_controller.records.intake import OutboxAcks


def test_a_record_that_came_before_is_not_new() -> None:
    acks = OutboxAcks(journaled=4)
    assert not acks.accept(4)
    assert acks.accept(5)
    assert not acks.accept(5)


def test_nothing_is_acknowledged_past_a_record_that_waits() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2, 3):
        acks.accept(sequence)
    assert acks.submit([1]) == 1
    assert acks.submit([3]) == 1
    assert acks.done(1, 1) == 1
    assert acks.done(1, 2) == 1
    assert acks.submit([2]) == 3
    assert acks.done(3, acks.flight) == 3


def test_after_a_failure_the_agent_sends_again_what_is_not_journaled() -> None:
    acks = OutboxAcks()
    acks.accept(1)
    acks.done(acks.submit([1]), acks.flight)
    acks.accept(2)
    acks.submit([2])
    acks.failed(acks.flight)
    assert acks.journaled == 1
    assert acks.accept(2)


def test_what_was_on_its_way_behind_a_failure_is_not_acknowledged_either() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2):
        acks.accept(sequence)
    acks.submit([1])
    behind = acks.submit([2])
    acks.failed(1)
    assert acks.done(behind, 2) == 0
    assert acks.in_flight == 0
    assert acks.accept(1)
    assert acks.done(acks.submit([1]), acks.flight) == 1


def test_what_was_on_its_way_before_a_refusal_is_taken_once_and_acknowledged() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2, 3):
        acks.accept(sequence)
    before = acks.submit([1]), acks.submit([2])
    acks.submit([3])
    acks.failed(3)
    assert [acks.accept(sequence) for sequence in (1, 2, 3, 4)] == [False, False, True, True]
    assert acks.done(before[0], 1) == 1
    assert acks.done(before[1], 2) == 2
    assert acks.done(acks.submit([3, 4]), acks.flight) == 4
    assert acks.in_flight == 0


def test_what_was_on_its_way_before_a_refusal_and_is_refused_as_well_is_sent_again() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2, 3):
        acks.accept(sequence)
        acks.submit([sequence])
    acks.failed(3)
    assert not acks.accept(1)
    acks.failed(1)
    acks.failed(2)
    assert [acks.accept(sequence) for sequence in (1, 2, 3)] == [True, True, True]
    assert acks.in_flight == 0


def test_a_record_that_waited_at_a_refusal_is_sent_again_and_those_behind_it_are_not() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2, 3):
        acks.accept(sequence)
    assert acks.submit([2]) == 0
    acks.submit([3])
    acks.failed(2)
    assert acks.done(0, 1) == 0
    assert [acks.accept(sequence) for sequence in (1, 2, 3)] == [True, False, True]
    assert acks.submit([3]) == 0
    assert acks.submit([1]) == 3


def test_what_turns_out_to_be_journaled_after_a_failure_is_not_taken_when_it_comes_again() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2, 3):
        acks.accept(sequence)
        acks.submit([sequence])
    acks.failed(3)
    assert [acks.done(mark, flight=mark) for mark in (1, 2)] == [1, 2]
    assert [acks.accept(sequence) for sequence in (1, 2, 3)] == [False, False, True]
