"""The outbox: order, at least once, and no number twice."""

import dataclasses
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.persistence.agent_database import RESERVATION, Remembered
from everstep_agent.persistence.outbox import Outbox
from everstep_common.clock import Stamp
from everstep_proto.generated import fleet_pb2


@dataclasses.dataclass
class MemoryStore:
    """A disk whose content can be looked at after any prefix of the writes."""

    records: dict[int, bytes] = dataclasses.field(default_factory=dict)
    reserved: int = RESERVATION
    lasting: int = 0

    def put_record(self, sequence: int, payload: bytes) -> None:
        self.records[sequence] = payload

    def acknowledge(self, sequence: int, lasting: int) -> None:
        self.lasting = lasting
        self.records = {n: data for n, data in self.records.items() if n > sequence}

    def note(self, key: str, value: str) -> None:
        if key == "reserved":
            self.reserved = int(value)

    def restart(self) -> Remembered:
        """Return what the next agent finds, which reserves for itself as the file does."""
        self.reserved += RESERVATION
        payloads = tuple(self.records[sequence] for sequence in sorted(self.records))
        return Remembered("outbox-1", self.reserved, payloads, acknowledged=self.lasting)


def _outbox(store: MemoryStore, remembered: Remembered, records_max: int = 1000) -> Outbox:
    return Outbox(store, remembered, lambda: Stamp("boot", 1, 2), records_max)


def _fresh(records_max: int = 1000) -> tuple[MemoryStore, Outbox]:
    store = MemoryStore()
    return store, _outbox(store, Remembered("outbox-1"), records_max)


def _record(text: str) -> fleet_pb2.Record:
    return fleet_pb2.Record(check_finished=fleet_pb2.CheckFinished(order_id=text))


def _progress(step: int) -> fleet_pb2.Record:
    return fleet_pb2.Record(steps_completed=fleet_pb2.StepsCompleted(first_step=step))


def _taken(outbox: Outbox) -> list[fleet_pb2.Record]:
    return list(iter(outbox.pop_unsent, None))


def _names(records: Sequence[fleet_pb2.Record]) -> list[str]:
    return [record.check_finished.order_id for record in records]


def test_records_go_out_in_order_with_sequence_and_stamp() -> None:
    _, outbox = _fresh()
    for name in "abc":
        outbox.record(_record(name))
    taken = _taken(outbox)
    assert _names(taken) == ["a", "b", "c"]
    assert [record.sequence for record in taken] == [1, 2, 3]
    assert taken[0].stamp.boot_id == "boot"


def test_a_new_stream_gets_everything_that_was_not_acknowledged() -> None:
    _, outbox = _fresh()
    for name in "abcd":
        outbox.record(_record(name))
    assert len(_taken(outbox)) == 4
    outbox.acknowledge(2)
    assert outbox.first_unacknowledged == 3
    outbox.rewind()
    assert _names(_taken(outbox)) == ["c", "d"]


def test_a_controller_whose_word_is_older_than_the_progress_it_took_has_lost_nothing() -> None:
    store, outbox = _fresh()
    outbox.record(_record("a"))
    for step in range(3):
        outbox.record(_progress(step))
    _taken(outbox)
    outbox.acknowledge(4)
    outbox.rewind()
    assert not outbox.welcome(acknowledged=1)
    restarted = _outbox(store, store.restart())
    assert not restarted.welcome(acknowledged=1)
    assert restarted.welcome(acknowledged=0)
    assert not restarted.welcome(acknowledged=0)


def test_a_controller_that_knows_more_than_the_disk_gets_new_numbers() -> None:
    store, outbox = _fresh()
    outbox.record(_record("a"))
    outbox.rewind()
    outbox.welcome(acknowledged=500)
    (record,) = _taken(outbox)
    assert record.sequence == 501
    assert list(store.records) == [501]


def test_an_overflow_drops_the_oldest_progress_first_and_counts_it() -> None:
    _, outbox = _fresh(records_max=10)
    outbox.record(_record("finding"))
    for step in range(20):
        outbox.record(_progress(step))
    taken = _taken(outbox)
    assert len(taken) <= 10
    assert taken[0].check_finished.order_id == "finding"
    assert taken[-1].steps_completed.first_step == 19
    assert outbox.counts.dropped + len(taken) == 21


def test_an_overflow_of_findings_alone_stays_bounded() -> None:
    _, outbox = _fresh(records_max=10)
    for number in range(100):
        outbox.record(_record(str(number)))
    assert outbox.counts.waiting <= 10


def _exited(rank: int) -> fleet_pb2.Record:
    return fleet_pb2.Record(rank_exited=fleet_pb2.RankExited(rank=rank))


def _restarted(generation: int) -> fleet_pb2.Record:
    return fleet_pb2.Record(restarted_here=fleet_pb2.RestartedHere(generation=generation))


def _generations(records: Sequence[fleet_pb2.Record]) -> list[int]:
    told = [record for record in records if record.HasField("restarted_here")]
    return [record.restarted_here.generation for record in told]


def test_an_overflow_drops_progress_then_findings_then_what_became_of_jobs() -> None:
    _, outbox = _fresh(records_max=40)
    for number in range(10):
        outbox.record(_exited(number))
        outbox.record(_record(f"finding {number}"))
        outbox.record(_progress(number))
        outbox.record(_exited(10 + number))
    kinds = [_kinds(outbox)]
    for number in range(20, 90):
        outbox.record(_exited(number))
        kinds.append(_kinds(outbox))
    assert list(dict.fromkeys(kinds)) == [
        {"steps_completed", "check_finished", "rank_exited"},
        {"check_finished", "rank_exited"},
        {"rank_exited"},
    ]
    ranks = [record.rank_exited.rank for record in _taken(outbox)]
    assert ranks == sorted(ranks)
    assert ranks[-1] == 89
    assert len(ranks) <= 40


def test_an_overflow_never_drops_the_word_of_a_restart_without_the_controller() -> None:
    _, outbox = _fresh(records_max=20)
    for generation in (2, 3, 4):
        outbox.record(_restarted(generation))
        for number in range(200):
            outbox.record(_record(f"finding {number}"))
            outbox.record(_exited(number))
            outbox.record(_progress(number))
    assert outbox.counts.waiting <= 20
    taken = _taken(outbox)
    assert _generations(taken) == [2, 3, 4]
    numbers = [record.sequence for record in taken]
    assert numbers == sorted(numbers)


def test_even_where_nothing_else_waits() -> None:
    _, outbox = _fresh(records_max=4)
    for generation in range(2, 12):
        outbox.record(_restarted(generation))
    assert _generations(_taken(outbox)) == list(range(2, 12))
    assert outbox.counts.dropped == 0


def _kinds(outbox: Outbox) -> frozenset[str]:
    """What waits, by kind; it stays."""
    taken = _taken(outbox)
    outbox.rewind()
    return frozenset(record.WhichOneof("body") or "" for record in taken)


_Word = st.sampled_from(["record", "send", "ack", "reconnect", "kill"])


@given(st.lists(_Word, max_size=60))
def test_whatever_interrupts_nothing_is_lost_reordered_or_numbered_twice(words: list[str]) -> None:
    """The controller journals what it was sent, and acknowledges it now and then."""
    store, outbox = _fresh()
    journal: dict[int, str] = {}
    made: list[str] = []
    for word in [*words, "reconnect", "send"]:
        if word == "record":
            made.append(str(len(made)))
            outbox.record(_record(made[-1]))
        elif word == "send":
            for record in _taken(outbox):
                name = record.check_finished.order_id
                assert journal.setdefault(record.sequence, name) == name
        elif word == "ack":
            outbox.acknowledge(max(journal, default=0))
        else:
            if word == "kill":
                outbox = _outbox(store, store.restart())
            outbox.rewind()
            outbox.welcome(max(journal, default=0))
    assert [journal[sequence] for sequence in sorted(journal)] == made
