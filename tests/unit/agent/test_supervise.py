"""A task of the agent that fails: a finding at once, a line in the log once, and tried again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from everstep_agent.supervise import first_to_end, keep_running
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from fakes.jumping_loop import simulate


def run_for(seconds: float, work: Callable[[], Awaitable[None]]) -> list[Judgement]:
    """Keep a task running for so long; return what is reported of it."""
    reported: list[Judgement] = []

    async def scenario() -> None:
        running = asyncio.create_task(keep_running("metrics", work, reported.extend))
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    simulate(scenario())
    return reported


async def _port_in_use() -> None:
    try:
        raise OSError(98, "Address already in use")
    except OSError as error:
        raise OSError("metrics_address: 127.0.0.1:7435 is in use; choose another") from error


def test_what_fails_until_somebody_acts_is_one_line_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported = run_for(10.5, _port_in_use)
    (record,) = caplog.records
    assert record.getMessage() == (
        "task metrics failed: metrics_address: 127.0.0.1:7435 is in use; choose another; "
        "it is tried again each second"
    )
    assert record.exc_info is None
    assert len(reported) == 11
    assert all(isinstance(one, Faulty) for one in reported)


def test_another_failure_and_one_after_a_good_while_are_logged_with_their_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # What it does at each start: fail at once, or after so many seconds.
    starts = iter([(0.0, "a"), (0.0, "a"), (0.0, "b"), (90.0, "b"), (1e9, "")])

    async def work() -> None:
        after_s, message = next(starts)
        await asyncio.sleep(after_s)
        raise ValueError(message)

    reported = run_for(200.0, work)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        *("a", "b", "b")
    ]
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    # Twice well for a minute: before its last failure, and since.
    assert [one for one in reported if isinstance(one, Healthy)] == [
        Healthy(FindingKey("agent/metrics", "TaskFailed"), "it runs")
    ] * 2


async def _of_a_cancelled_call() -> None:
    raise asyncio.CancelledError  # as gRPC does at whoever uses a call that another has cancelled


async def _for_ever() -> None:
    await asyncio.Event().wait()


def test_a_work_that_is_cancelled_by_what_it_waits_for_is_an_error_and_no_end() -> None:
    """Else the agent would go on without it, and nobody would hear of that."""

    async def both() -> None:
        await first_to_end(_for_ever(), _of_a_cancelled_call())

    with pytest.raises(asyncio.InvalidStateError, match="cancelled by what it waited for"):
        asyncio.run(both())


def test_a_task_that_is_cancelled_by_what_it_waits_for_is_started_again() -> None:
    told = [one for one in run_for(5.0, _of_a_cancelled_call) if isinstance(one, Faulty)]
    assert len(told) >= 2
    assert "cancelled by what it waited for" in str(told[0].finding)
