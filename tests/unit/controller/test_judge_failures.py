"""Judges that fail are findings of the controller, until they judge again."""

from dataclasses import dataclass, field

from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.runtime.controller_findings import ShellTrouble, open_controller_findings
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from unit.core.hangs.test_hang_decisions import ENFORCED, JudgedStory

_S = 10**9
_WHY = "the judge exited 1: PermissionError: [Errno 1] Operation not permitted"


@dataclass
class _Book:
    """A book of failures, with a job that runs."""

    now_ns: int = _S
    lines: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        story = JudgedStory(settings=ENFORCED)
        story.begin()
        self.job, self.state = story.job, story.core.state
        self.failures = JudgeFailures(
            lambda: self.state, lambda: self.now_ns, lambda *line: self.lines.append(line)
        )

    def findings(self) -> dict[str, str]:
        trouble = ShellTrouble(judge_failures=self.failures.open_failures())
        found = open_controller_findings(State(), trouble, lambda *_: 0)
        return {
            one.finding.component: f"{one.finding.message}; {one.finding.rule}" for one in found
        }


def test_a_judge_that_fails_at_a_job_is_one_finding_with_the_next_command() -> None:
    book = _Book()
    book.failures.note(JudgeName.HANG, _WHY, book.job.id)
    book.now_ns += 5 * _S
    book.failures.note(JudgeName.HANG, _WHY, book.job.id)
    book.failures.note(JudgeName.HANG, _WHY)
    ((component, told),) = book.findings().items()
    assert component == "controller/judge/hang-look"
    assert "hang-look fails at j: who holds back a job that stands still is not known" in told
    assert "'everstep job j restart' does not wait for it" in told
    assert "'systemctl cat everstep-controller'" in told
    (failure,) = book.failures.open_failures()
    assert (failure.since_ns, failure.why) == (_S, _WHY)
    assert [line[:2] for line in book.lines] == [
        ("j", "JudgeFailed"),
        ("controller", "JudgeFailed"),
    ]
    assert _WHY in book.lines[0][2]


def test_it_is_over_when_the_judge_has_judged_that_job() -> None:
    book = _Book()
    book.failures.note(JudgeName.HANG, _WHY, book.job.id)
    book.failures.note(JudgeName.END, _WHY, book.job.id)
    book.failures.clear(JudgeName.HANG, book.job.id)
    assert set(book.findings()) == {"controller/judge/end-look"}
    book.failures.note(JudgeName.HANG, _WHY, book.job.id)
    assert len(book.lines) == 3, "it is told anew"


def test_a_job_that_breaks_its_judge_is_told_while_others_are_judged() -> None:
    book = _Book()
    for _ in range(20):
        book.failures.note(JudgeName.HANG, _WHY, book.job.id)
        book.now_ns += 60 * _S
        book.failures.clear(JudgeName.HANG, "another-1")
        assert book.findings()
    assert len(book.lines) == 1
    book.now_ns += 600 * _S
    book.failures.clear(JudgeName.HANG, "another-1")
    assert book.findings() == {}


def test_it_is_over_with_the_job() -> None:
    book = _Book()
    book.failures.note(JudgeName.SLOW_RANKS, _WHY, book.job.id)
    assert book.findings()
    book.job.state = JobState.ENDED
    assert book.findings() == {}


def test_a_judge_over_samples_holds_what_it_found() -> None:
    book = _Book()
    book.failures.note_of_fleet("ClockSkewJudge", "ValueError(7)")
    assert "ClockSkewJudge fails: what it found is held" in str(book.findings())
    book.failures.clear_of_fleet("ClockSkewJudge")
    assert book.findings() == {}


def test_what_a_rank_wrote_into_an_error_is_shown_as_text() -> None:
    book = _Book()
    book.failures.note(JudgeName.COLLECTIVES, "\x1b[2Jgone" * 500, book.job.id)
    (failure,) = book.failures.open_failures()
    assert "\x1b" not in failure.why
    assert len(failure.why) <= 500
