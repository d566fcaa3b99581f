"""Log lines as people, the journal and machines read them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from everstep_common.logs import configure_logging


@pytest.fixture(autouse=True)
def _root_logger_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _logged(style: str, environ: dict[str, str]) -> str:
    stream = io.StringIO()
    configure_logging("info", style, stream, environ)
    logger = logging.getLogger("everstep.test")
    logger.debug("not shown")
    logger.warning("disk %s is slow", "sda")
    try:
        raise OSError("no such device")
    except OSError:
        logger.exception("probe failed")
    return stream.getvalue()


def test_under_systemd_every_record_is_one_line_with_its_priority() -> None:
    first, second = _logged("auto", {"JOURNAL_STREAM": "8:1"}).splitlines()
    assert first == "<4>everstep.test: disk sda is slow"
    assert second.startswith("<3>everstep.test: probe failed | Traceback")
    assert second.endswith("OSError: no such device")


def test_json_lines_carry_the_exception() -> None:
    first, second = map(json.loads, _logged("json", {}).splitlines())
    assert (first["level"], first["logger"], first["message"]) == (
        "warning",
        "everstep.test",
        "disk sda is slow",
    )
    assert "OSError: no such device" in second["exception"]


def test_on_a_terminal_lines_carry_time_and_level() -> None:
    assert " WARNING everstep.test: disk sda is slow\n" in _logged("auto", {})


@pytest.mark.parametrize("environ", [{}, {"JOURNAL_STREAM": "8:1"}])
def test_what_jobs_and_operators_say_makes_no_line_of_its_own(environ: dict[str, str]) -> None:
    stream = io.StringIO()
    configure_logging("info", "auto", stream, environ)
    logging.getLogger("everstep.test").warning("planned: %s", "fans\n<0>forged\x1b[31m")
    assert stream.getvalue().endswith("everstep.test: planned: fans\\n<0>forged\\x1b[31m\n")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("environ", [{}, {"JOURNAL_STREAM": "8:1"}])
def test_what_an_exception_says_looks_like_no_line_of_its_own(environ: dict[str, str]) -> None:
    stream = io.StringIO()
    configure_logging("info", "auto", stream, environ)
    try:
        raise ValueError("x\n<0>forged\x1b[2J\r12:00:00 WARNING everstep.test: raised XidFatal")
    except ValueError:
        logging.getLogger("everstep.test").exception("it failed")
    first, *others = stream.getvalue().rstrip("\n").split("\n")
    assert "it failed" in first
    assert all(line.startswith("| ") for line in others)
    assert all(line.isprintable() for line in (first, *others))
