"""How many lines of the log somebody outside may cause."""

import logging
from collections.abc import Iterator

import pytest

from everstep_common.log_limit import (
    JOB_LINES_A_MINUTE,
    LINES_A_MINUTE,
    LogLimit,
    by_host,
    by_user,
    once_a_minute,
)


class _Lines(logging.Handler):
    """Handler that keeps what is written, and is told what time it is."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.now_s = 1000.0
        self.addFilter(self._stamp)
        self.limit = LogLimit()
        self.addFilter(self.limit)

    def _stamp(self, record: logging.LogRecord) -> bool:
        record.created = self.now_s
        return True

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[_Lines]:
    """Yield what the logger of these tests writes."""
    handler, logger = _Lines(), logging.getLogger(__name__)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)
    logger.propagate = True


def _flood(count: int, uid: int) -> None:
    for number in range(count):
        logging.getLogger(__name__).warning("garbage %d", number, extra=by_user(uid))


def test_a_user_who_floods_writes_a_few_lines_and_is_counted(lines: _Lines) -> None:
    _flood(10_000, 65534)
    assert lines.written == [f"garbage {number}" for number in range(LINES_A_MINUTE)]
    assert lines.limit.dropped == 10_000 - LINES_A_MINUTE


def test_what_was_left_out_is_told_when_the_minute_is_over(lines: _Lines) -> None:
    _flood(100, 65534)
    lines.now_s += 59
    logging.getLogger(__name__).info("something else")
    assert lines.written[LINES_A_MINUTE:] == ["something else"]
    lines.now_s += 2
    logging.getLogger(__name__).info("and more")
    assert lines.written[LINES_A_MINUTE + 1 :] == [
        f"{100 - LINES_A_MINUTE} more lines in a minute, caused by user 65534: garbage %d",
        "and more",
    ]
    _flood(1, 65534)
    assert lines.written[-1] == "garbage 0"


def test_nobody_takes_the_lines_of_another_or_of_another_kind(lines: _Lines) -> None:
    _flood(1000, 65534)
    logger = logging.getLogger(__name__)
    logger.warning("garbage %d", 7, extra=by_user(1000))
    logger.warning("cut off", extra=by_user(65534))
    logger.warning("garbage %d", 8, extra=by_host("10.0.0.1"))
    assert lines.written[LINES_A_MINUTE:] == ["garbage 7", "cut off", "garbage 8"]


def test_lines_about_a_job_are_its_own_and_64_ranks_have_room_for_theirs(lines: _Lines) -> None:
    logger = logging.getLogger(__name__)
    for job in ("flood", "train"):
        for rank in range(64 if job == "train" else 1000):
            logger.info("job %s: rank %d restored", job, rank)
    assert sum("train" in line for line in lines.written) == 64
    assert sum("flood" in line for line in lines.written) == JOB_LINES_A_MINUTE


def test_what_the_daemon_says_of_itself_is_never_left_out(lines: _Lines) -> None:
    for number in range(1000):
        logging.getLogger(__name__).info("node %d is lost", number)
    assert len(lines.written) == 1000


def test_causes_are_bounded_however_many_addresses_strangers_have(lines: _Lines) -> None:
    logger = logging.getLogger(__name__)
    for number in range(5000):
        logger.info("bulk connection ended", extra=by_host(f"host-{number}"))
    assert len(lines.limit._windows) <= 1024


def test_a_clock_that_was_set_back_leaves_nothing_untold(lines: _Lines) -> None:
    _flood(100, 65534)
    lines.now_s -= 3600
    logging.getLogger(__name__).info("later")
    assert lines.written[-2].startswith("90 more lines in a minute")


def test_a_fault_that_lasts_is_told_once_a_minute_whatever_step_it_is_about(lines: _Lines) -> None:
    logger = logging.getLogger(__name__)
    for second in range(150):
        lines.now_s = 1000.0 + second
        why = f"gen-1/step-{second}: No space left on device"
        logger.warning("job %s: %s", "demo", why, extra=once_a_minute("job demo", why))
    assert lines.written == [
        "job demo: gen-1/step-0: No space left on device",
        "59 more lines in a minute, caused by job demo: gen-#/step-#: No space left on device: "
        "job %s: %s",
        "job demo: gen-1/step-60: No space left on device",
        "59 more lines in a minute, caused by job demo: gen-#/step-#: No space left on device: "
        "job %s: %s",
        "job demo: gen-1/step-120: No space left on device",
    ]


def test_another_reason_and_another_job_are_told_at_once(lines: _Lines) -> None:
    logger = logging.getLogger(__name__)
    for job, why in (("a", "full"), ("a", "full"), ("a", "read-only"), ("b", "full")):
        logger.warning("job %s: %s", job, why, extra=once_a_minute(f"job {job}", why))
    assert lines.written == ["job a: full", "job a: read-only", "job b: full"]
