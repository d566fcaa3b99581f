"""How a rank's end is joined with what was seen of it."""

import os
import selectors
from pathlib import Path

from everstep.launch.inspection.end_evidence import EndEvidence, EvidencePlaces, with_ending
from everstep.launch.inspection.look_service import LookService
from everstep.launch.inspection.sources.dump_files import fresh_dumps, report_of_files
from everstep.launch.inspection.sources.ras_client import RasUse
from everstep_common.hangs.reports.rank_report import (
    EvidenceSource,
    GroupReport,
    ProcessEnding,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)

_GAVE_UP = ProcessEnding(exit_code=1, signal=0, kind="collective_timeout", text="Timed out")
_GROUP = GroupReport("default_pg", "0-3", 4, enqueued=2, completed=2)


def test_a_rank_that_was_seen_alive_stays_so_however_it_ended_afterwards() -> None:
    alive = RankHangReport(rank=2, pid=77, process=ProcessFacts(ProcessState.SLEEPING))
    killed = ProcessEnding(exit_code=0, signal=9, kind="killed")
    assert with_ending(alive, killed) == alive
    assert with_ending(alive, None) == alive


def test_a_rank_that_was_gone_when_it_was_looked_at_has_its_ending() -> None:
    gone = RankHangReport(rank=1, pid=77, process=ProcessFacts(ProcessState.DEAD))
    assert with_ending(gone, _GAVE_UP).process.ending == _GAVE_UP
    # One that left no dump either: how it ended is all that there is.
    blind = RankHangReport(rank=1, pid=1)
    assert with_ending(blind, _GAVE_UP).process == ProcessFacts(ProcessState.DEAD, ending=_GAVE_UP)


def test_a_rank_that_came_when_the_others_had_given_up_is_not_one_that_gave_up() -> None:
    late = RankHangReport(rank=2, pid=1, groups=(_GROUP,))
    assert with_ending(late, _GAVE_UP) == late


def test_a_dump_that_is_older_than_its_generation_is_none(tmp_path: Path) -> None:
    prefixes = (str(tmp_path / "exit-"), str(tmp_path / "dump-"))
    (tmp_path / "exit-3").write_text("{}")
    os.utime(tmp_path / "exit-3", ns=(5 * 10**9, 5 * 10**9))
    assert fresh_dumps(prefixes, 3, 5 * 10**9) == [tmp_path / "exit-3"]
    assert fresh_dumps(prefixes, 3, 60 * 10**9) == []
    (missing,) = report_of_files(prefixes, 3, 60 * 10**9, 4).blind
    assert missing.source is EvidenceSource.FLIGHT_RECORDER
    (invalid,) = report_of_files(prefixes, 3, 0, 4).blind
    assert "exit-3: it is no Flight Recorder dump" in invalid.reason


def test_what_a_generation_left_when_it_ended_is_not_taken_for_the_next_ones(
    tmp_path: Path,
) -> None:
    """The next one may start sooner after it than a file system can tell."""
    for name in ("exit-2", "exit-3", "exit-9", "dump-2"):
        (tmp_path / name).write_text("{}")
    with selectors.DefaultSelector() as selector:
        looks = LookService(selector, None, dict)
        places = EvidencePlaces.of(tmp_path, {}, RasUse.NEVER)
        EndEvidence(selector, looks, places).begin(2, range(2, 4), 12)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["dump-2", "exit-9"]


class _SlowLooks(LookService):
    """Looks that never come to an end, as on a machine without a free processor."""

    def ask(self, told: object, *, patient: bool = False) -> None:
        del told, patient


def test_a_job_waits_five_seconds_for_readers_without_a_processor_which_have_ten() -> None:
    now_s = 100.0
    acts: list[str] = []
    told: list[int] = []
    with selectors.DefaultSelector() as selector:
        places = EvidencePlaces.of(None, {}, RasUse.NEVER)
        looks = _SlowLooks(selector, None, dict)
        evidence = EndEvidence(selector, looks, places, lambda: now_s)
        evidence.begin(1, range(2), 4)
        evidence.begin_look()
        evidence.then(lambda: acts.append("stop"))
        evidence.answer(1, lambda answers: told.append(len(answers)))
        assert evidence.due_in_s() == 5.0
        now_s = 104.9
        evidence.advance()
        assert acts == []
        now_s = 105.0
        evidence.advance()
        assert (acts, told) == (["stop"], [])
        evidence.then(lambda: acts.append("start"))
        assert acts == ["stop", "start"]
        assert evidence.due_in_s() == 5.0
        now_s = 110.0
        evidence.advance()
        assert (told, evidence.due_in_s()) == ([0], None)
