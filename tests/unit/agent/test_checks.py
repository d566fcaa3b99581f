"""The check: what was read now decides, not what was found before."""

import asyncio
from collections.abc import Sequence

import pytest

from everstep_agent.orders import judge_check, run_check
from everstep_agent.sources.source import ProbeResult
from everstep_common.judging.findings import Finding, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Unknown

_XID = Finding(
    component="gpu/0000:3b:00.0", condition="XidFatal", severity=Severity.FATAL, message="Xid 79"
)
_FINE = ProbeResult("host")


@pytest.mark.parametrize(
    ("look", "open_fatal", "passed"),
    [
        (ProbeResult("nvml"), [], True),
        # Latched: the kernel does not say again what it said.
        (ProbeResult("nvml"), [_XID], True),
        (ProbeResult("nvml", (Unknown(_XID.key, "not rebooted since"),)), [_XID], True),
        (ProbeResult("nvml", (Healthy(_XID.key, "fine again"),)), [_XID], True),
        (ProbeResult("nvml", (Faulty(_XID),)), [_XID], False),
        # Seen once: it is told when it has lasted for as many polls as its condition says.
        (ProbeResult("nvml", (Faulty(_XID),)), [], True),
        (ProbeResult("nvml", trouble="no answer within 5 s"), [], False),
        (ProbeResult("kernel_log", denied="reading it takes a capability"), [], True),
    ],
)
def test_only_what_was_read_now_decides(
    look: ProbeResult, open_fatal: Sequence[Finding], passed: bool
) -> None:
    assert judge_check([_FINE, look], open_fatal).passed is passed


def test_the_sentence_names_what_failed_and_what_could_not_be_seen() -> None:
    looks = [ProbeResult("host", trouble="no meminfo"), ProbeResult("nvml", (Faulty(_XID),))]
    assert judge_check(looks, [_XID]).message == (
        "XidFatal on gpu/0000:3b:00.0: Xid 79; probe host: no meminfo"
    )
    denied = ProbeResult("kernel_log", denied="takes a right")
    assert "takes a right" in judge_check([denied], []).message


def test_probes_that_do_not_finish_fail_the_check() -> None:
    async def hang() -> Sequence[ProbeResult]:
        await asyncio.Event().wait()
        return ()

    result = asyncio.run(run_check(hang, lambda: [], 0.01))
    assert (result.passed, result.message) == (False, "the probes did not finish within 0.01 s")
