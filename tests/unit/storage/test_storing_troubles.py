"""What is told of a disk on which some files still find room."""

from everstep_agent.storage.storing_troubles import StoringTroubles


def test_what_another_rank_has_stored_ends_no_trouble() -> None:
    troubles = StoringTroubles()
    for step in range(9):
        troubles.failed(1, f"step {step}: No space left on device", replica=False)
        troubles.stored(0)
        assert troubles.newest == f"step {step}: No space left on device"
    troubles.stored(1)
    assert troubles.newest == ""


def test_the_newest_is_told() -> None:
    troubles = StoringTroubles()
    troubles.failed(0, "full", replica=False)
    troubles.failed(1, "read-only", replica=False)
    assert troubles.newest == "read-only"
    troubles.failed(0, "full again", replica=False)
    assert troubles.newest == "full again"
    troubles.stored(0)
    assert troubles.newest == "read-only"
    troubles.forget()
    assert troubles.newest == ""


def test_a_replica_that_is_not_wanted_any_more_keeps_no_trouble_open() -> None:
    troubles = StoringTroubles()
    troubles.failed(7, "full", replica=True)
    assert troubles.newest == "full"
    troubles.stored(0)
    assert troubles.newest == ""
