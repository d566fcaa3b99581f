"""Who holds a job back that stands still, as `everstep why` and `everstep job` show it."""

from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from everstep_cli.views.findings import explanation
from everstep_cli.views.jobs import job_sheet
from everstep_cli.views.stacks import hang_sheet
from everstep_common.hangs.reports.verdict import HangClass, WaitStep
from everstep_controller.api.admin.messages.fleet_messages import hang_line
from everstep_controller.core.model.job import JobRecord
from everstep_proto.generated import admin_pb2
from unit.core.hangs.test_hang_decisions import ENFORCED, JudgedStory
from unit.core.hangs.test_response import seen


def _drawn(*parts: RenderableType) -> str:
    out = StringIO()
    for part in parts:
        Console(file=out, width=100).print(part)
    return out.getvalue()


def _hanging_job() -> JobRecord:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    hang = seen(HangClass.CPU_SIDE, (1, "n1"))
    chain = (WaitStep("0", "all_reduce #7", "default (0-1)", "1"),)
    story.judge(replace(hang, verdict=replace(hang.verdict, chain=chain, blind=("no stack",))))
    return story.job


def test_a_job_that_nobody_has_looked_at_has_no_verdict() -> None:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    assert hang_line(story.job) is None


def test_verdict_culprits_chain_and_plan_are_shown() -> None:
    line = hang_line(_hanging_job())
    assert line is not None
    reply = admin_pb2.WhyReply(kind="job", state="stalled", answer="it stands still", hang=line)
    drawn = _drawn(*explanation(reply, "demo"))
    for words in (
        "CPU side",
        "certain",
        "rank 1 on n1",
        "rank 0 waits in all_reduce #7 of default (0-1) for rank 1",
        "2 in a row found the same",
        "it is restarted when no rank has moved for 120 s",
        "not seen: no stack",
    ):
        assert words in drawn, drawn


def test_thousands_of_culprits_are_counted_and_their_words_are_made_harmless() -> None:
    line = admin_pb2.HangLine(kind="frozen", confidence="certain", sentence="\x1b[2Jgone")
    line.culprits.extend(
        admin_pb2.HangCulprit(rank=rank, node="n", reason="x") for rank in range(20)
    )
    drawn = _drawn(*hang_sheet(line))
    assert "\x1b" not in drawn
    assert "12 more ranks" in drawn


def test_the_sheet_of_a_job_has_it_too() -> None:
    job = admin_pb2.JobDetail(hang=hang_line(_hanging_job()))
    assert "rank 1 on n1" in _drawn(*job_sheet(job, 0))
