"""Saved log formats: finds the kernel message, time and host in a line, whichever tool wrote it."""

import html
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from everstep_agent.detectors.kernel.logs.log_prefixes import PREFIXES, STAMP

_ROUNDS = 12
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
# A field of a record that takes several lines: journalctl -o export, dmesg --json, -o json-pretty.
_EXPORT_FIELD = re.compile(r"^ {0,8}(?P<key>_{0,2}[A-Z][A-Z0-9_]{1,63})=(?P<value>.*)$", re.S)
_JSON_FIELD = re.compile(r'^\s*"(?P<key>\w{1,64})"\s*:(?P<value>.*)$', re.S)
# journalctl -o verbose: the first line of a record.
_VERBOSE = re.compile(rf"^{STAMP} \[s=\w{{1,64}};i=")
MESSAGE_KEYS = ("MESSAGE", "msg", "message", "log")
_TIME_KEYS = ("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "time", "timestamp", "ts")
_TAG_KEYS = ("SYSLOG_IDENTIFIER", "_TRANSPORT", "programname", "syslogtag", "app-name")
_HOST_KEYS = ("_HOSTNAME", "host", "hostname")
# Found in lines that belong to a record but do not hold its message as text: they hold its time,
# its writer, or the message as a list of bytes.
FIELD_NEEDLES = (
    "__REALTIME_TIMESTAMP",
    '"time"',
    '"pri"',
    "SYSLOG_IDENTIFIER",
    "SYSLOG_FACILITY",
    "_TRANSPORT",
    "_HOSTNAME",
    '"MESSAGE":[',
    '"MESSAGE": [',
)
# Text copied from a ticket system's page has non-breaking spaces and HTML entities.
SPACE_NEEDLES = ("NVRM:&nbsp;", "NVRM:\u00a0")
_MICROSECONDS = 10**6


@dataclass(frozen=True, slots=True)
class LogLine:
    """Message, time and host in a line of a saved log.

    ``time`` as it is written there, empty if it is not; ``boot_s``: the same in seconds of the
    boot, where it says so. ``program``: another one than the kernel wrote it. ``injected``: it is
    in the kernel's log, but a process wrote it there. ``host``: on whose node, where it says so.
    """

    text: str
    time: str = ""
    boot_s: float | None = None
    program: str = ""
    injected: bool = False
    host: str = ""


class LogFormats:
    """Parser of log lines, each of which may be of another format than the one before."""

    def __init__(self) -> None:
        # What is known so far of a record that takes several lines.
        self._time = ""
        self._boot_s: float | None = None
        self._tag = ""
        self._injected = False
        self._host = ""

    def read(self, raw: str) -> LogLine:
        """Return what a line says. No text is refused."""
        text = _COLOURS.sub("", raw.strip("\ufeff\r\n\0\x1e")).replace("\u00a0", " ")
        if "&" in text:
            text = html.unescape(text).replace("\u00a0", " ")
        if not text.strip():
            self._end_of_record()
            return LogLine("")
        bare = text.lstrip("> \t").removeprefix("data: ")
        if bare.startswith("{"):
            if (record := _object(bare)) is not None:
                return self._of_object(record)
            self._end_of_record()
        if field := _field(text):
            return self._of_field(*field)
        if header := _VERBOSE.match(text):
            self._end_of_record()
            self._time = header["time"]
            return LogLine("")
        return _peeled(text, LogLine(""))

    def _end_of_record(self) -> None:
        self._time, self._boot_s, self._tag, self._injected = "", None, "", False
        self._host = ""

    def _of_object(self, record: dict[str, object]) -> LogLine:
        self._end_of_record()
        keys = (*_TIME_KEYS, "__MONOTONIC_TIMESTAMP", "SYSLOG_FACILITY", *_TAG_KEYS, *_HOST_KEYS)
        if not any(
            key in record for key in MESSAGE_KEYS if isinstance(record.get(key), str | list)
        ):
            # Log shippers of clouds wrap the record in one more JSON object.
            inner = (one for one in record.values() if isinstance(one, dict) and "MESSAGE" in one)
            record = next(inner, record)
        for key in ("pri", *keys):
            self._note(key, record.get(key))
        return self._message(next((record[k] for k in MESSAGE_KEYS if k in record), ""))

    def _of_field(self, key: str, value: object) -> LogLine:
        if key in MESSAGE_KEYS:
            return self._message(value)
        self._note(key, value)
        return LogLine("")

    def _message(self, value: object) -> LogLine:
        known = LogLine("", self._time, self._boot_s, self._tag, self._injected, self._host)
        return _peeled(_COLOURS.sub("", _words(value)), known)

    def _note(self, key: str, value: object) -> None:
        if value is None:
            return
        if key in _TAG_KEYS:
            name = str(value)[:64].strip(": ")
            self._tag = self._tag or ("" if name == "kernel" else name)
        elif key in _HOST_KEYS:
            self._host = str(value)[:255]
        elif key == "SYSLOG_FACILITY":
            self._injected = (_number(value) or 0) >= 1
        elif key == "pri":
            # dmesg --json, the first field of a record: eight times the facility, plus the level.
            self._end_of_record()
            self._injected = (_number(value) or 0) >= 8
        elif key == "__MONOTONIC_TIMESTAMP":
            number = _number(value)
            self._boot_s = number / _MICROSECONDS if number is not None else None
        elif key in _TIME_KEYS and not self._time:
            self._time, self._boot_s = _time(key, value)


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text.rstrip(" ,"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _field(text: str) -> tuple[str, object] | None:
    if match := _EXPORT_FIELD.match(text):
        return match["key"], match["value"]
    if match := _JSON_FIELD.match(text):
        try:
            return match["key"], json.loads(match["value"].strip().rstrip(","))
        except (ValueError, RecursionError):
            return None
    return None


def _words(value: object) -> str:
    if isinstance(value, list):
        # journalctl writes a message that is no clean text as a list of bytes.
        numbers = [byte for byte in value if isinstance(byte, int) and 0 <= byte < 256]
        return bytes(numbers).decode(errors="replace")
    return value.rstrip("\n") if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", text):
        return None
    return float(text)


def _time(key: str, value: object) -> tuple[str, float | None]:
    number = _number(value)
    if number is None:
        return str(value)[:64], None
    if not key.endswith("TIMESTAMP"):
        # dmesg --json counts seconds of the boot.
        return str(value), number if number < 1e9 else None
    try:
        return datetime.fromtimestamp(number / _MICROSECONDS, UTC).isoformat(), None
    except (ValueError, OverflowError, OSError):
        return str(value), None


def _peeled(text: str, known: LogLine) -> LogLine:
    time, boot_s, program, injected = known.time, known.boot_s, known.program, known.injected
    host, file = known.host, ""
    for _ in range(_ROUNDS):
        match = next((m for prefix in PREFIXES if (m := prefix.match(text))), None)
        if match is None:
            break
        text = text[match.end() :]
        found = match.groupdict()
        time = found.get("time") or time
        host = found.get("host") or host
        file = file or found.get("file") or ""
        boot_s = _boot_s(found) or boot_s
        if (tag := found.get("tag")) and tag != "kernel":
            # A message of another program that begins with "kernel:" is still not the kernel's.
            program = program or tag
        injected = injected or _is_injected(found)
    if not time and boot_s is not None:
        time = f"{boot_s:.6f}"
    return LogLine(text, time, boot_s, program, injected, host or file)


def _boot_s(found: dict[str, str | None]) -> float | None:
    if boot := found.get("boot"):
        return float(boot)
    microseconds = found.get("boot_us")
    return int(microseconds) / _MICROSECONDS if microseconds else None


def _is_injected(found: dict[str, str | None]) -> bool:
    priority, facility = found.get("priority"), found.get("facility")
    return bool(priority and int(priority) >> 3) or facility not in (None, "kern")
