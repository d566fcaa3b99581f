"""Injection marking: wraps a source so that judgements caused by injections say so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from everstep_agent.injections.running import RunningInjections
from everstep_agent.sources.source import Source
from everstep_agent.sources.threaded import ThreadedLook
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.judging.judgement import Judgement

T = TypeVar("T")
OpenFindings = Callable[[], Sequence[BookEntry]]
_Mark = Callable[[Sequence[Judgement]], Sequence[Judgement]]


def marked(source: Source, running: RunningInjections, open_findings: OpenFindings) -> Source:
    """Return the source with what injections cause marked as such."""

    def mark(said: Sequence[Judgement]) -> Sequence[Judgement]:
        return running.marked(source.name, said, _by_key(open_findings()))

    look = source.look
    if isinstance(look, ThreadedLook):
        return replace(source, look=_threaded(look, mark))

    async def marked_look() -> Sequence[Judgement]:
        return mark(await look())

    return replace(source, look=marked_look)


def _threaded(look: ThreadedLook[T], mark: _Mark) -> ThreadedLook[T]:
    # Must stay a ThreadedLook: the loop that reads all sources gives those a common thread.
    return replace(look, judge=lambda reading: mark(look.judge(reading)))


def _by_key(held: Sequence[BookEntry]) -> Mapping[FindingKey, Finding]:
    return {known.finding.key: known.finding for known in held}
