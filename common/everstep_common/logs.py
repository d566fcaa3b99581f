"""Daemon logging: one line per record, with systemd's priorities under systemd, or as JSON."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from everstep_common.log_limit import LogLimit
from everstep_common.printable import printable

# syslog levels, which systemd reads from a "<N>" prefix (sd-daemon(3)).
_SYSLOG_LEVEL = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}


class _TextFormatter(logging.Formatter):
    """A message is one line, though jobs and operators have a word in it; a traceback is several.

    Else who gives a reason, or raises an exception, could write other lines of the log: those of a
    traceback are printable, and all begin alike.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        told = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"| {printable(line)}" for line in told.split("\n"))


class _JournalFormatter(_TextFormatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).replace("\n", " ")
        return f"<{_SYSLOG_LEVEL.get(record.levelno, 6)}>{text}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logging(
    level: str,
    style: str,
    stream: TextIO = sys.stderr,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Send all logging to ``stream``; styles: "auto" (journal under systemd), "text", "json"."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogLimit())
    if style == "json":
        handler.setFormatter(_JsonFormatter())
    elif style == "auto" and "JOURNAL_STREAM" in environ:
        handler.setFormatter(_JournalFormatter("%(name)s: %(message)s"))
    else:
        handler.setFormatter(
            _TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
