"""Saved logs of every form: the message, its time, and who wrote it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.kernel.logs.kernel_origin import is_of_kernel
from everstep_agent.detectors.kernel.logs.log_formats import LogFormats, LogLine
from everstep_agent.detectors.kernel.logs.log_reading import LogReading, NumberedLine
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.judging.findings import Severity

_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
_TABLES = load_tables()

_FORMS = [
    ("raw", _XID, ""),
    ("dmesg", f"[12345.678901] {_XID}", "12345.678901"),
    ("dmesg with callers", f"[    5.000001][  T123] {_XID}", "5.000001"),
    ("dmesg -d", f"[   12.345678 <    0.000012>] {_XID}", "12.345678"),
    ("dmesg -T", f"[Mon Nov  3 12:00:01 2025] {_XID}", "Mon Nov  3 12:00:01 2025"),
    ("dmesg -T, German", f"[Mo Nov  3 12:00:01 2025] {_XID}", "Mo Nov  3 12:00:01 2025"),
    ("dmesg -x", f"kern  :err   : [   13.100000] {_XID}", "13.100000"),
    ("dmesg -H", f"[Nov 3 12:00] {_XID}", "Nov 3 12:00"),
    ("dmesg -H, later", f"[  +0.000012] {_XID}", ""),
    ("dmesg --color", f"\x1b[32m[   13.100000] \x1b[0m\x1b[31m{_XID}\x1b[0m", "13.100000"),
    (
        "dmesg --time-format iso",
        f"2025-11-03T12:00:01,123456+01:00 {_XID}",
        "2025-11-03T12:00:01,123456+01:00",
    ),
    ("kmsg", f"3,339,5140900,-;{_XID}", "5.140900"),
    ("kmsg with caller", f"3,339,5140900,-,caller=T1;{_XID}", "5.140900"),
    ("journalctl", f"Nov 03 12:00:01 gpu-1 kernel: {_XID}", "Nov 03 12:00:01"),
    (
        "journalctl, precise",
        f"Nov 03 12:00:01.123456 gpu-1 kernel: {_XID}",
        "Nov 03 12:00:01.123456",
    ),
    ("journalctl, German", f"Okt 06 17:59:27 gpu-1 kernel: {_XID}", "Okt 06 17:59:27"),
    (
        "journalctl, iso",
        f"2025-11-03T12:00:01+0100 gpu-1 kernel: {_XID}",
        "2025-11-03T12:00:01+0100",
    ),
    (
        "journalctl, full",
        f"Mon 2025-11-03 12:00:01 UTC gpu-1 kernel: {_XID}",
        "Mon 2025-11-03 12:00:01 UTC",
    ),
    ("journalctl, monotonic", f"[ 5140.900000] gpu-1 kernel: {_XID}", "5140.900000"),
    ("RFC 3164", f"<3>Nov  3 12:00:01 gpu-1 kernel: [ 5140.900000] {_XID}", "Nov  3 12:00:01"),
    (
        "RFC 5424",
        f"<3>1 2025-11-03T12:00:01.003Z gpu-1 kernel - - - {_XID}",
        "2025-11-03T12:00:01.003Z",
    ),
    (
        "RFC 5424 with data",
        f'<3>1 2025-11-03T12:00:01.003Z gpu-1 kernel - - [a@1 b="c"][d@2] {_XID}',
        "2025-11-03T12:00:01.003Z",
    ),
    (
        "rsyslog",
        f"2025-11-03T12:00:01.123456+01:00 gpu-1 kernel: [ 5140.900000] {_XID}",
        "2025-11-03T12:00:01.123456+01:00",
    ),
    (
        "container runtime",
        f"2025-11-03T12:00:01.123456789Z stdout F [ 5140.900000] {_XID}",
        "2025-11-03T12:00:01.123456789Z",
    ),
    (
        "docker logs -t",
        f"2025-11-03T12:00:01.123456789Z {_XID}",
        "2025-11-03T12:00:01.123456789Z",
    ),
    ("docker compose", f"agent-1  | [ 5140.900000] {_XID}", "5140.900000"),
    ("kubectl --prefix", f"[pod/log-abc/reader] [ 5140.900000] {_XID}", "5140.900000"),
    ("mail", f"> > [ 5140.900000] {_XID}\r\n", "5140.900000"),
    ("grep -n", f"812:[ 5140.900000] {_XID}", "5140.900000"),
    ("grep -n in syslog", f"812:Nov  3 12:00:01 gpu-1 kernel: {_XID}", "Nov  3 12:00:01"),
    ("grep -Hn", f"log/kern.log.1:9:Nov  3 12:00:01 gpu-1 kernel: {_XID}", "Nov  3 12:00:01"),
    ("pdsh", f"node-7: [ 5140.900000] {_XID}", "5140.900000"),
    ("journalctl, unix", f"1762171201.123456 gpu-1 kernel: {_XID}", "1762171201.123456"),
    ("journalctl, delta", f"[ 5140.900000 <    0.000000 >] gpu-1 kernel: {_XID}", "5140.900000"),
    ("ticket", f"{{noformat}}[ 5140.900000] {_XID}", "5140.900000"),
    ("chat", f"```[ 5140.900000] {_XID}", "5140.900000"),
    ("blanks of a page", f"[ 5140.900000] {_XID}".replace(" ", "\u00a0"), "5140.900000"),
    ("blanks of HTML", f"[ 5140.900000] {_XID}".replace(" ", "&nbsp;"), "5140.900000"),
    ("event stream", "data: " + json.dumps({"MESSAGE": _XID, "_TRANSPORT": "kernel"}), ""),
    ("cloud", json.dumps({"jsonPayload": {"MESSAGE": _XID}, "timestamp": "T1"}), ""),
    ("byte order mark", f"\ufeff[ 5140.900000] {_XID}", "5140.900000"),
    ("docker json", json.dumps({"log": f"{_XID}\n", "stream": "stdout", "time": "T1"}), "T1"),
    (
        "journalctl json",
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": "1762171201000000",
                "SYSLOG_IDENTIFIER": "kernel",
                "MESSAGE": _XID,
            }
        ),
        "2025-11-03T12:00:01+00:00",
    ),
    ("journalctl json, bytes", json.dumps({"MESSAGE": list(_XID.encode())}), ""),
]


@pytest.mark.parametrize(("form", "line", "time"), _FORMS)
def test_a_message_is_read_out_of_every_form(form: str, line: str, time: str) -> None:
    read = LogFormats().read(line)
    assert (read.text, read.time, read.program) == (_XID, time, ""), form


@pytest.mark.parametrize(("form", "line", "time"), _FORMS)
def test_a_message_that_no_rule_knows_is_read_as_the_kernels_in_every_form(
    form: str, line: str, time: str
) -> None:
    usual = "usb 1-1: new high-speed USB device number 2"
    for blank in (" ", "\u00a0", "&nbsp;"):
        line = line.replace(_XID.replace(" ", blank), usual.replace(" ", blank))
    if form not in ("cloud", "journalctl json, bytes"):  # a rule has to know the message of these
        assert _read(line).kernel_lines == 1, (form, time)


@pytest.mark.parametrize(
    "line",
    [
        "step 3: loss 0.1",
        "epoch 1: loss 2.5",
        "root:x:0:0:root:/root:/bin/bash",
        "[rank0]: Traceback (most recent call last):",
        "node-1:123:456 [0] NCCL INFO Bootstrap : Using eth0",
        "[2025-11-03 12:00:01] INFO: hello",
        "2025-11-03 12:00:01,123 INFO hello",
        "I1103 12:00:01.123456 123 foo.cc:1] hello",
        "Nov  3 12:00:01 gpu-1 systemd[1]: Started hello",
        "2025-11-03T12:00:01.123456+01:00 gpu-1 sshd[12]: hello",
        "[ 5140.900000] gpu-1 systemd[1]: Started hello",
        "[    12.345] (II) Loading extension GLX",
        '{"step": 3, "loss": 0.1}',
        "",
        "\0\0\x7fELF",
    ],
)
def test_a_line_of_another_program_is_not_read_as_the_kernels(line: str) -> None:
    assert not is_of_kernel(line)
    assert _read(line).kernel_lines == 0


def test_lines_are_read_as_the_kernels_by_their_form_or_by_what_a_rule_knows() -> None:
    reading = _read(
        "hello",
        "[    1.000000] Linux version 6.8",
        _XID,  # its form says so, and a rule knows it: it counts once
        "EXT4-fs (sda1): Remounting filesystem read-only",
        "mlx5_core_tuning: hello",
        "nfs: server filer-1 not responding, still trying",
        f"Nov  3 12:00:01 gpu-1 bob: Nov  3 12:00:01 gpu-1 kernel: {_XID}",
    )
    assert (reading.lines, reading.kernel_lines, reading.foreign) == (7, 4, 1)


_SELF_CHECK = "Device: /dev/sda [SAT], FAILED SMART self-check. BACK UP DATA NOW!"


def test_what_smartd_and_gpfs_write_is_found_and_what_a_job_writes_like_them_is_not() -> None:
    reading = _read(
        f"Nov  3 12:00:01 gpu-1 smartd[812]: {_SELF_CHECK}",
        "Nov  3 12:00:01 gpu-1 smartd[812]: Device: /dev/sdb, opened",
        "Nov  3 12:00:02 gpu-1 mmfs: [X] Recovery Log I/O failed, unmounting file system scratch",
        f"Nov  3 12:00:03 gpu-1 train.py[77]: {_SELF_CHECK.replace('sda', 'sdz')}",
    )
    found = [(one.finding.condition, one.finding.component) for one in reading.findings.values()]
    assert found == [("DiskSelfCheckFailed", "disk/sda"), ("GpfsUnmounted", "disk/gpfs")]
    assert (reading.kernel_lines, reading.foreign) == (2, 1)


def test_a_record_of_a_journal_is_the_kernels_where_it_says_so() -> None:
    exported = ("__CURSOR=s=1", "_TRANSPORT=kernel", "MESSAGE=hello", "")
    assert _read(*exported, *_EXPORTED).kernel_lines == 1
    pretty = ("{", '   "_TRANSPORT" : "kernel",', '   "MESSAGE" : "hello"', "}")
    assert _read(*pretty).kernel_lines == 1


@pytest.mark.parametrize(
    ("lines", "time"),
    [
        (
            [
                "__CURSOR=s=1",
                "__REALTIME_TIMESTAMP=1762171201000000",
                "_TRANSPORT=kernel",
                f"MESSAGE={_XID}",
            ],
            "2025-11-03T12:00:01+00:00",
        ),
        (
            [
                "      },{",
                '         "pri": 3,',
                '         "time":    12.345000,',
                f'"msg": "{_XID}"',
            ],
            "12.345",
        ),
    ],
)
def test_a_record_of_several_lines_is_read(lines: list[str], time: str) -> None:
    formats = LogFormats()
    read = [formats.read(line) for line in lines]
    assert (read[-1].text, read[-1].time) == (_XID, time)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        (f"Nov  3 12:00:01 gpu-1 python[12]: saw {_XID}", "python"),
        (f"Nov  3 12:00:01 gpu-1 CRON: {_XID}", "CRON"),
        (f"<3>1 2025-11-03T12:00:01.003Z gpu-1 gpud 12 - - {_XID}", "gpud"),
        (json.dumps({"SYSLOG_IDENTIFIER": "gpud", "MESSAGE": _XID}), "gpud"),
        (f"[ 5140.900000] gpu-1 gpud[77]: {_XID}", "gpud"),
        (f"Nov  3 12:00:01 gpu-1 bob: kernel: {_XID}", "bob"),
        (f"Nov  3 12:00:01 gpu-1 bob: Nov  3 12:00:01 gpu-1 kernel: {_XID}", "bob"),
        (json.dumps({"_TRANSPORT": "stdout", "MESSAGE": f"kernel: {_XID}"}), "stdout"),
        (f"node-7: Nov  3 12:00:01 node-7 bob: {_XID}", "bob"),
        (f"kern.log:9:Nov  3 12:00:01 gpu-1 bob[3]: {_XID}", "bob"),
        (f"Nov  3 12:00:01 gpu-1 bob kernel: {_XID}", "bob kernel"),
        (f"Nov  3 12:00:01 gpu-1 a(b)[3]: {_XID}", "a(b)[3]"),
        (json.dumps({"programname": "bob", "message": _XID}), "bob"),
    ],
)
def test_a_program_that_quotes_the_kernel_is_told_from_it(line: str, program: str) -> None:
    assert LogFormats().read(line).program == program


def test_a_record_of_dmesg_says_who_wrote_it() -> None:
    formats = LogFormats()
    for priority, injected in ((12, True), (3, False)):
        formats.read(f'   "pri": {priority},')
        assert formats.read(f'   "msg": "{_XID}"').injected is injected


@pytest.mark.parametrize("line", [f"12,339,5140900,-;{_XID}", f"user  :notice: [ 1.5] {_XID}"])
def test_a_line_that_a_process_wrote_to_the_kernels_log_is_injected(line: str) -> None:
    read = LogFormats().read(line)
    assert (read.text, read.injected) == (_XID, True)


@pytest.mark.parametrize(
    "message",
    [
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        "nfs: server filer-1 not responding, still trying",
        "python3[4242]: segfault at 7f ip 7f sp 7f error 4 in libnccl.so.2.18.5[7f00]",
        "mlx5_core 0000:5e:00.0: Fatal error 1 detected",
        "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0",
        "{1}[Hardware Error]: event severity: fatal",
        "EXT4-fs (sda1): Remounting filesystem read-only",
        "mce: [Hardware Error]: Machine check events logged",
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "[ 12.345678] {}",
        "Nov  3 12:00:01 gpu-1 kernel: {}",
        "2025-11-03T12:00:01,123456+01:00 {}",
        "2025-11-03T12:00:01.123456789Z {}",
    ],
)
def test_no_part_of_a_message_is_taken_for_what_leads_to_it(message: str, form: str) -> None:
    assert LogFormats().read(form.replace("{}", message)).text == message


def _read(*texts: str) -> LogReading:
    reading = LogReading(_TABLES)
    reading.read_lines([NumberedLine(number, text) for number, text in enumerate(texts, 1)])
    return reading


def test_what_repeats_is_told_once_with_its_first_and_last_line() -> None:
    reading = _read("nothing", f"[ 1.0] {_XID}", "nothing", f"[ 2.0] {_XID}", "nothing")
    (told,) = reading.findings.values()
    places = told.places
    assert (places.line, places.last_line, places.count) == (2, 4, 2)
    assert (places.time, places.last_time) == ("1.000000", "2.000000")
    assert reading.lines == 5


def test_every_xid_is_counted_and_each_is_told_beside_a_graver_one() -> None:
    lines = [f"NVRM: Xid (PCI:0000:3b:00): {code}, words" for code in (79, 48, 45, 45, 4242)]
    reading = _read(*lines)
    assert [(x.code, x.name != "", x.places.count) for x in reading.xids.values()] == [
        (79, True, 1),
        (48, True, 1),
        (45, True, 2),
        (4242, False, 1),
    ]
    assert [told.finding.rule for told in reading.findings.values()] == [
        "Xid table: 79",
        "Xid table: 48",
        "unknown Xid",
    ]
    assert reading.worst() is Severity.FATAL


def test_the_drivers_next_word_is_the_rule_of_the_xid_before() -> None:
    wants = "changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    reading = _read(
        "NVRM: Xid (PCI:0000:3b:00): 48, words",
        f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action {wants}",
    )
    (first, second) = reading.findings.values()
    assert (first.finding.rule, first.places.count) == ("Xid 154", 1)
    assert second.finding.condition == "GpuRecoveryAction"


def test_what_the_log_itself_calls_over_is_not_bad_any_more() -> None:
    silent = "nfs: server filer-1 not responding, still trying"
    reading = _read(silent, "nfs: server filer-1 OK")
    (told,) = reading.findings.values()
    assert (told.ended_line, reading.worst()) == (2, None)
    (told,) = _read(silent, "nfs: server filer-1 OK", silent).findings.values()
    assert told.ended_line is None


def test_lines_of_other_programs_are_counted_and_left_out() -> None:
    reading = _read(f"Nov  3 12:00:01 gpu-1 python[12]: {_XID}")
    assert (reading.foreign, dict(reading.findings)) == (1, {})


_EXPORTED = ("__CURSOR=s=1", "_TRANSPORT=syslog", "SYSLOG_IDENTIFIER=sshd", "MESSAGE=hello", "")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([*_EXPORTED, "__CURSOR=s=2", "_TRANSPORT=kernel", f"MESSAGE={_XID}", ""], 8),
        ([*_EXPORTED, "__CURSOR=s=2", f"MESSAGE={_XID}", "_TRANSPORT=kernel"], 7),
        (["{", '"_TRANSPORT" : "syslog"', "}", "{", f'"MESSAGE" : "{_XID}"', "}"], 5),
        ([*_EXPORTED, "__CURSOR=s=2", f"MESSAGE={_XID}", "_TRANSPORT=syslog"], 0),
        (["{", f'"MESSAGE" : "{_XID}",', '"SYSLOG_IDENTIFIER" : "bob"', "}"], 0),
    ],
)
def test_a_record_says_who_wrote_it_before_or_behind_its_message(
    lines: list[str], found: int
) -> None:
    reading = LogReading(_TABLES)
    reading.read_lines([NumberedLine(number, text) for number, text in enumerate(lines, 1)])
    reading.finish()
    assert [told.places.line for told in reading.findings.values()] == ([found] if found else [])
    assert reading.foreign == (0 if found else 1)


def test_a_finding_keeps_the_host_that_told_it() -> None:
    reading = _read(f"node-7: [ 1.0] {_XID}", f"node-8: [ 2.0] {_XID}", f"node-7: [ 3.0] {_XID}")
    told = [(one.host, one.places.count) for one in reading.findings.values()]
    assert told == [("node-7", 2), ("node-8", 1)]


def test_a_report_of_one_node_that_names_it_in_some_lines_is_of_one_node() -> None:
    reading = _read(f"[ 1.0] {_XID}", f"Nov  3 12:00:01 gpu-1 kernel: {_XID}", f"[ 2.0] {_XID}")
    assert [(one.host, one.places.count) for one in reading.findings.values()] == [("gpu-1", 3)]


@pytest.mark.parametrize("words", ["NVRM: Xid", "NVRM: Xid (PCI:0000:3b:00):"])
def test_an_xid_that_a_mail_has_broken_in_two_lines_is_read(words: str) -> None:
    reading = _read(f"> [ 1.0] {words}", "> " + _XID.removeprefix(words).lstrip())
    assert [(one.code, one.places.line) for one in reading.xids.values()] == [(79, 1)]


@given(st.lists(st.one_of(st.text(), st.sampled_from([line for _, line, _ in _FORMS])), max_size=9))
def test_no_text_makes_the_reading_fail_and_every_line_is_counted(texts: list[str]) -> None:
    reading = _read(*texts)
    assert reading.lines == len(texts)
    assert reading.kernel_lines <= reading.lines
    known = sum(_XID in LogFormats().read(text).text for text in texts)
    assert sum(x.places.count for x in reading.xids.values()) + reading.foreign >= known


@given(st.text(), st.sampled_from([line for _, line, _ in _FORMS]), st.integers(0, 300))
def test_torn_and_spoilt_lines_are_read(before: str, line: str, cut: int) -> None:
    formats = LogFormats()
    for text in (line[:cut], line[cut:], before + line, line[:cut] + before + line[cut:]):
        assert isinstance(formats.read(text), LogLine)
