"""The history of a job of weeks: all is there once, however often the controller was killed."""

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from everstep_controller.journal.history_rows import (
    Content,
    FleetDayTold,
    IncidentTold,
    JobHour,
    NodeDayTold,
    content_of,
)
from everstep_controller.journal.port import HistoryKind, HistoryRange
from everstep_controller.journal.sqlite.journal import SqliteJournal
from integration.history_months import begun, pass_hour

_TESTS = Path(__file__).parents[1]
_HOURS = 300
_CONTENTS: dict[HistoryKind, type[Content]] = {
    HistoryKind.JOB_HOUR: JobHour,
    HistoryKind.INCIDENT: IncidentTold,
    HistoryKind.NODE_DAY: NodeDayTold,
    HistoryKind.FLEET_DAY: FleetDayTold,
}
Told = dict[tuple[HistoryKind, str, int], object]


def _start(path: Path, passed: int) -> "subprocess.Popen[str]":
    of_job = [str(path), str(passed), str(_HOURS)]
    command = [sys.executable, "-m", "integration.history_months", *of_job]
    return subprocess.Popen(command, cwd=_TESTS, text=True, stdout=subprocess.PIPE)


def _told(path: Path) -> Told:
    """Return what is in the history; of all that goes on what was told last."""
    with closing(SqliteJournal(path, read_only=True)) as store:
        store.verify(whole=True)
        return {
            (kind, row.key, row.begin_ns): content_of(row, content)
            for kind, content in _CONTENTS.items()
            for row in store.history(HistoryRange(kind, 0, 2**62))
        }


def test_all_is_written_though_the_state_forgets_and_once_though_the_writer_is_killed(
    tmp_path: Path,
) -> None:
    with _start(tmp_path / "whole", 0) as whole:
        assert whole.wait(300) == 0
    chance, passed = random.Random(7), 0
    while passed < _HOURS - 1:
        with _start(tmp_path / "killed", passed) as process:
            assert process.stdout is not None
            last = passed + chance.randrange(40, 120)
            for line in process.stdout:
                passed = int(line)
                if passed >= last:
                    process.kill()
                    break
    told = _told(tmp_path / "whole")
    assert _told(tmp_path / "killed") == told

    story = begun()
    for hour in range(_HOURS):
        pass_hour(story, hour)
    job, now_ns = story.job, story.now_ns
    incidents = {place[1]: one for place, one in told.items() if isinstance(one, IncidentTold)}
    assert len(incidents) == _HOURS > len(story.core.state.incidents)
    # Costs are told of all, parts and deaths also of those of which the state has none any more.
    assert all(one.costs and one.parts and one.deaths and one.members for one in incidents.values())
    hours = [one for one in told.values() if isinstance(one, JobHour)]
    newest = max(hours, key=lambda hour: sum(hour.totals.values()))
    assert dict(newest.totals) == {one.value: ns for one, ns in job.ledger.totals(now_ns).items()}
    assert newest.failures == _HOURS
    begins = sorted(begin for kind, _, begin in told if kind is HistoryKind.JOB_HOUR)
    assert begins == list(range(begins[0], begins[-1] + 1, 3_600_000_000_000))
    found = [one for one in told.values() if isinstance(one, NodeDayTold) and one.findings]
    assert found
    lost_ns = sum(one.lost_ns for one in told.values() if isinstance(one, NodeDayTold))
    assert lost_ns == sum(sum(one.costs.values()) for one in incidents.values() if one.node)
