"""Open findings as the agent keeps them for its successor."""

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.monitoring.findings import dump_findings, load_findings
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.judging.judgement import Faulty

_NOW = Stamp("boot-1", 3600 * 10**9, 7)
_SLOW = Finding(
    component="link/mlx5_0/1",
    condition="LinkSlow",
    severity=Severity.FATAL,
    message="it is slow",
    mode=Mode.ADVISE,
)


def test_open_findings_survive_being_written_and_read() -> None:
    book = FindingBook(CONDITIONS)
    for _ in range(CONDITIONS["LinkSlow"].raise_after):
        book.enter_judgements([Faulty(_SLOW)], _NOW)
    assert book.open_findings
    again = FindingBook(CONDITIONS, load_findings(dump_findings(book.open_findings)))
    assert again.open_findings == book.open_findings
    assert load_findings("not what was written") == ()
