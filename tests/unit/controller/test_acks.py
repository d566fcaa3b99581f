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
    assert acks.done(1, 0) == 1
    assert acks.done(1, 0) == 1
    assert acks.submit([2]) == 3
    assert acks.done(3, 0) == 3


def test_after_a_failure_the_agent_sends_again_what_is_not_journaled() -> None:
    acks = OutboxAcks()
    acks.accept(1)
    acks.done(acks.submit([1]), 0)
    acks.accept(2)
    acks.submit([2])
    acks.failed(0)
    assert acks.journaled == 1
    assert acks.accept(2)


def test_what_was_on_its_way_behind_a_failure_is_not_acknowledged_either() -> None:
    acks = OutboxAcks()
    for sequence in (1, 2):
        acks.accept(sequence)
    acks.submit([1])
    behind = acks.submit([2])
    acks.failed(0)
    assert acks.done(behind, 0) == 0
    assert acks.in_flight == 0
    assert acks.accept(1)
    assert acks.done(acks.submit([1]), acks.failures) == 1
