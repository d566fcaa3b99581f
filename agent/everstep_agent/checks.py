"""Node check that the controller orders: reads everything once, then says if ranks may run here."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from everstep_agent.orders import CheckResult
from everstep_agent.sources.source import ProbeResult
from everstep_common.judging.findings import Finding
from everstep_common.judging.judgement import Faulty

_TOLD = 5


async def run_check(
    look: Callable[[], Awaitable[Sequence[ProbeResult]]],
    open_fatal: Callable[[], Sequence[Finding]],
    deadline_s: float,
) -> CheckResult:
    """Read every probe once within the deadline, and judge what was read.

    ``open_fatal`` returns the fatal findings that are open. One of them fails the check only when
    this look has seen it again: a latched one is the controller's to judge, and one reading that is
    not raised yet may be a link that bounces.
    """
    try:
        async with asyncio.timeout(deadline_s):
            looks = await look()
    except TimeoutError:
        return CheckResult(False, f"the probes did not finish within {deadline_s:g} s")
    return judge_check(looks, open_fatal())


def judge_check(looks: Sequence[ProbeResult], open_fatal: Sequence[Finding]) -> CheckResult:
    """Judge one look at everything."""
    unread = [f"probe {one.probe}: {one.trouble}" for one in looks if one.trouble]
    denied = [f"probe {one.probe}: {one.denied}" for one in looks if one.denied]
    seen = {said.key for one in looks for said in one.judgements if isinstance(said, Faulty)}
    fatal = [
        f"{one.condition} on {one.component}: {one.message}"
        for one in open_fatal
        if one.key in seen
    ]
    if problems := fatal + unread:
        return CheckResult(False, "; ".join(problems[:_TOLD]))
    if denied:
        return CheckResult(True, f"nothing fatal was read; {'; '.join(denied)}")
    return CheckResult(True, "every probe was read, and nothing fatal")
