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
    assert acks.done(1) == 1
    assert acks.done(1) == 1
    assert acks.submit([2]) == 3
    assert acks.done(3) == 3


def test_after_a_failure_the_agent_sends_again_what_is_not_journaled() -> None:
    acks = OutboxAcks()
    acks.accept(1)
    acks.done(acks.submit([1]))
    acks.accept(2)
    acks.submit([2])
    acks.failed()
    assert acks.journaled == 1
    assert acks.accept(2)
