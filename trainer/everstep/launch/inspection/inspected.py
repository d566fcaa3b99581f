"""Inspected: what a look found, as messages to the agent that are small enough for its socket."""

from collections.abc import Iterator, Sequence

from everstep.launch.inspection.question import Answer
from everstep_common.codec import json_text
from everstep_common.launcher_messages import INSPECTED_MAX, Inspected
from everstep_common.reports.nodes import RANK_REPORT_TEXT_MAX


def inspected(look: int, answers: Sequence[Answer]) -> Iterator[Inspected]:
    """Yield the answer to Inspect; at least one message, and only the last says that it is."""
    texts = [json_text(answer.report) for answer in answers]
    fit = [text for text in texts if len(text) <= RANK_REPORT_TEXT_MAX]
    left_out = len(texts) - len(fit)
    missing = f"{left_out} reports are larger than {RANK_REPORT_TEXT_MAX} bytes" if left_out else ""
    if not answers:
        missing = "none of its ranks runs here now, and none was looked at"
    starts = range(0, max(1, len(fit)), INSPECTED_MAX)
    for start in starts:
        last = start == starts[-1]
        part = tuple(fit[start : start + INSPECTED_MAX])
        yield Inspected(look, part, more=not last, missing=missing if last else "")
