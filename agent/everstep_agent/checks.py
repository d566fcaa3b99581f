"""The check that an order asks for: look at everything once, then say if ranks may run here."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from everstep_agent.orders import CheckResult
from everstep_common.findings import Finding


async def run_check(
    look: Callable[[], Awaitable[None]], fatal: Callable[[], Sequence[Finding]], deadline_s: float
) -> CheckResult:
    """Run every probe once within the deadline; passed when no fatal finding is open after that."""
    try:
        async with asyncio.timeout(deadline_s):
            await look()
    except TimeoutError:
        return CheckResult(False, f"the probes did not finish within {deadline_s:g} s")
    found = fatal()
    if found:
        worst = "; ".join(f"{one.condition} on {one.component}" for one in found[:5])
        return CheckResult(False, f"{len(found)} fatal findings are open: {worst}")
    return CheckResult(True, "every probe was read and no fatal finding is open")
