"""``everstep-agent read-log``: finds the faults of a node in a saved kernel log."""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence

from everstep_agent.commands.log_files import LogFile, LogFileError
from everstep_agent.commands.log_report import report_as_json, report_as_text, shown_name
from everstep_agent.detectors.kernel.logs.log_reading import LogReading
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.judging.findings import Severity

NOTHING_BAD, BAD, UNREADABLE = 0, 1, 2

_DESCRIPTION = """\
Reads a saved kernel log and says what it tells about the node: Xids and SXids of NVIDIA GPUs and
switches, network cards, PCIe, memory, disks and file systems, hangs and crashes. It needs no root,
no configuration and no GPU.

FILE may be what dmesg prints (with any of -T -x -H --json, with colours), records of /dev/kmsg,
journalctl (short, short-iso, short-monotonic, json, export, cat …), kern.log or /var/log/messages,
the output of docker, kubectl, pdsh, grep -H or nvidia-bug-report.sh, a mail that quotes one of
them, or all of them mixed, of one node or several; as it is or packed with gzip, xz or bzip2."""

# The short form of it. Lines of -o cat do not say whose they are, so few of them can be told.
_FORMS = (
    "what dmesg or journalctl -k (any -o but cat) prints, kern.log, /var/log/messages, records of"
    " /dev/kmsg and nvidia-bug-report.log.gz ('everstep-agent read-log --help' lists all forms)"
)

_EPILOG = """\
examples:
  dmesg | everstep-agent read-log -
  everstep-agent read-log /var/log/kern.log.1.gz
  journalctl -k -b -1 -o short-iso | everstep-agent read-log -        the boot before this one
  everstep-agent read-log nvidia-bug-report.log.gz --json | jq '.findings[].message'

exit code:
  0  nothing degraded or fatal (what the log itself calls over does not count)
  1  something degraded or fatal
  2  wrong arguments, the file cannot be read or is no kernel log, or the report not written

--json writes one object:
  file, lines, kernel_lines (how many of them were read as messages of the kernel), driver (of
    NVIDIA, "" if the log does not say), torn (why the file could not be read to its end, "" if it
    could), foreign_lines (lines of other programs that only quote the kernel),
  worst ("fatal", "degraded", "info" or null),
  findings: component, condition, severity, message, suggested_action, rule (what decided),
    evidence, injected (a process wrote it), line, time, last_line, last_time, count,
    ended_line (where the kernel says that it is over, or null), host ("" if the lines name none),
  xids: code, name ("" if it is in no table), gpu, host, caused_by (the Xid that it follows, or
    null), count, line, time, last_line, last_time.
Fields may be added; none changes its meaning."""


def main(arguments: Sequence[str]) -> int:
    """Read one log; return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A log may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    reading = LogReading(load_tables())
    try:
        with LogFile(options.file) as file:
            _take(file, reading)
        reading.finish()
    except LogFileError as error:
        print(f"everstep-agent read-log: {error}", file=sys.stderr)
        return UNREADABLE
    for problem in _problems(file, reading):
        print(f"everstep-agent read-log: {problem}", file=sys.stderr)
    # Of what is no kernel log nothing is said that a person could take for a clean bill.
    is_shown = reading.lines if options.json else reading.kernel_lines
    if is_shown and not _shown(_report(file, reading, as_json=options.json)):
        return UNREADABLE
    if reading.worst() in (Severity.DEGRADED, Severity.FATAL):
        return BAD
    return UNREADABLE if file.torn or not reading.kernel_lines else NOTHING_BAD


def _report(file: LogFile, reading: LogReading, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(report_as_json(file, reading), indent=2)
    return report_as_text(file, reading)


def _take(file: LogFile, reading: LogReading) -> None:
    try:
        for piece in file.pieces():
            reading.read_lines(piece)
    except KeyboardInterrupt:
        # Interrupted by Ctrl-C: show what was found so far.
        file.torn = "you stopped it"


def _shown(report: str) -> bool:
    try:
        print(report, flush=True)
    except OSError as error:
        # Python must not complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"everstep-agent read-log: cannot write: {error.strerror}", file=sys.stderr)
            return False
        # Whoever reads it (head, less) has seen enough.
    return True


def _problems(file: LogFile, reading: LogReading) -> Iterator[str]:
    name, lines = shown_name(file), reading.lines
    if file.torn:
        yield f"{name} could be read up to line {lines} only: {file.torn}"
    elif not lines:
        yield f"{name} is empty; save a log first: dmesg > dmesg.txt"
    if lines and not reading.kernel_lines:
        quoted = f" ({reading.foreign} of other programs quote it)" if reading.foreign else ""
        yield (
            f"{name} is no kernel log: 0 of its {lines} lines were read as messages of the"
            f" kernel{quoted}; it reads {_FORMS}; save a log first: dmesg > dmesg.txt"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-agent read-log",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="a saved log; - reads standard input")
    parser.add_argument("--json", action="store_true", help="write one JSON object, see below")
    return parser
