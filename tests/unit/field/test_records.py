"""Records of the field: what is kept of a round is read as it was; logs are read from journald."""

import json
from pathlib import Path

from field.observation.logs import log_line
from field.observation.records import (
    EventSeen,
    Excuse,
    Fault,
    JobResult,
    Lateness,
    LedgerSeen,
    NodeSeen,
    Redo,
    Round,
    read,
    write,
)
from field.observation.watch import event_seen

_ROUND = Round(
    number=3,
    seed=1003,
    lasted_s=60.0,
    machines={"m1": "rack-1"},
    faults=(Fault("rank-killed", 1.0, 2.0, ("m1",), "a", (Excuse.REDO, Excuse.WAIT)),),
    nodes=(NodeSeen(1.5, "m1", "healthy", True, ("operator: x",)),),
    results=(
        JobResult(
            *("a", "sdk", ("m1",), 0.0, 50.0, True),
            codes={"m1": 0},
            steps=5,
            losses_equal=True,
            promised_equal=True,
            ledger=LedgerSeen(7, {"train": 7}),
        ),
    ),
    redone=(Redo(3.0, "a", 1, 2, since_s=1.5), Redo(3.5, "a", 2, 2)),
    events=(EventSeen(9.0, "HangJudged", "a", "b", 7.5), EventSeen(9.0, "JobEnded", "a", "b")),
    late=(Lateness(4.0, 0.6),),
    mode="advise",
    left_behind=("m1: a process",),
)


def test_a_round_that_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "round", _ROUND)
    assert read(tmp_path / "round") == _ROUND
    assert [path.name for path in tmp_path.iterdir()] == ["round"]


def test_a_record_from_before_something_was_kept_is_read_without_it(tmp_path: Path) -> None:
    write(tmp_path / "round", _ROUND)
    told = json.loads((tmp_path / "round").read_text())
    del told["mode"]
    for name in ("slack_s", "step_s", "checkpoint_steps"):
        del told["results"][0][name]
    (tmp_path / "round").write_text(json.dumps(told))
    old = read(tmp_path / "round")
    assert (old.mode, old.results[0].slack_s) == ("enforce", 60.0)


def test_when_an_event_happened_is_kept_unless_a_clock_was_stepped() -> None:
    at_ns = 1_012_500_000_000
    told = {"reason": "HangJudged", "subject": "a", "message": "b", "at_ns": at_ns}
    seen = event_seen(told, at_s=30.0, begun_us=1_000_000_000)
    assert (seen.at_s, seen.happened_s) == (30.0, 12.5)
    for wrong_s in (-7200, 30):
        stepped = {**told, "at_ns": at_ns + wrong_s * 1_000_000_000}
        assert event_seen(stepped, at_s=30.0, begun_us=1_000_000_000).happened_s is None


def _entry(unit: str, level: int, message: object) -> dict[str, object]:
    return {
        "_SYSTEMD_UNIT": unit,
        "PRIORITY": str(level),
        "MESSAGE": message,
        "__REALTIME_TIMESTAMP": "3500000",
    }


def test_lines_of_daemons_count_from_warnings_on_and_those_of_jobs_only_when_they_crash() -> None:
    agent, job = "everstep-agent.service", "job-a.service"
    warning = log_line("m1", _entry(agent, 4, "x: y"), 500_000)
    assert warning is not None
    assert (warning.at_s, warning.level, warning.text) == (3.0, 4, "x: y")
    assert log_line("m1", _entry(agent, 6, "all is well"), 0) is None
    assert log_line("m1", _entry(agent, 6, "Traceback (most recent call last):"), 0) is not None
    assert log_line("m1", _entry(job, 4, "the user's own warning"), 0) is None
    of_the_sdk = "WARNING:everstep:the agent is away; step 40 was written to /shared/a"
    assert log_line("m1", _entry(job, 6, of_the_sdk), 0) is not None
    of_the_launcher = "everstep: prctl: Operation not permitted"
    assert log_line("m1", _entry(job, 6, of_the_launcher), 0) is not None
    assert log_line("m1", _entry(job, 6, "mount: Operation not permitted"), 0) is None
    of_a_script = "Traceback (most recent call last):"
    assert log_line("m1", _entry(job, 6, of_a_script), 0) is None
    frame = list(b'  File "/opt/training/lib/everstep/run.py", line 3')
    assert log_line("m1", _entry(job, 6, frame), 0) is not None
    assert log_line("m1", _entry("ssh.service", 2, "Traceback (most recent call last):"), 0) is None
