"""``everstep-agent read-log`` on files: packed, torn, huge, unreadable; what it prints."""

import bz2
import gzip
import io
import json
import lzma
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_agent.main import main

_ROOT = Path(__file__).resolve().parents[2]
_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
_LOG = f"[    1.000000] Linux version 6.8\n[   12.500000] {_XID}\n[   13.000000] usb 1-1: new\n"


def _write(folder: Path, data: bytes | str) -> str:
    path = folder / "log"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def _json(capsys: pytest.CaptureFixture[str], file: str) -> dict[str, object]:
    main(["read-log", file, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert isinstance(report, dict)
    return report


def test_a_finding_is_shown_with_its_place_and_the_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["read-log", _write(tmp_path, _LOG)]) == 1
    shown = capsys.readouterr().out
    for words in (
        "FATAL",
        "GPU has fallen off the bus",
        "line 2, 12.500000",
        "gpu/0000:3b:00.0: XidFatal",
        "do: reboot_node; decided by: Xid table: 79",
        "1 fatal found in 3 lines",
    ):
        assert words in shown


def test_several_findings_begin_with_what_to_do_about_each_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fallen = "[   12.600000] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n"
    memory = "[   12.700000] Out of memory: Killed process 999 (python) total-vm:1kB\n"
    main(["read-log", _write(tmp_path, _LOG + fallen + memory)])
    assert capsys.readouterr().out.splitlines()[:3] == [
        "FATAL     gpu/0000:3b:00.0: reboot_node (XidFatal line 2, FallenOffTheBus line 4)",
        "DEGRADED  host/memory: watch (NodeOutOfMemory line 5)",
        "",
    ]


def test_the_fields_of_the_json_are_those_of_the_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = _json(capsys, _write(tmp_path, _LOG))
    with pytest.raises(SystemExit):
        main(["read-log", "--help"])
    told = capsys.readouterr().out
    findings, xids = report["findings"], report["xids"]
    assert isinstance(findings, list)
    assert isinstance(xids, list)
    for fields in (report, findings[0], xids[0]):
        assert all(field in told for field in fields)
    assert (report["lines"], report["worst"], findings[0]["line"]) == (3, "fatal", 2)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_a_packed_log_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes]
) -> None:
    assert _json(capsys, _write(tmp_path, pack(_LOG.encode())))["worst"] == "fatal"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_a_log_that_an_editor_saved_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    saved = _LOG.replace("\n", "\r\n").encode(encoding)
    assert _json(capsys, _write(tmp_path, saved))["worst"] == "fatal"
    assert _json(capsys, _write(tmp_path, gzip.compress(saved)))["worst"] == "fatal"


def test_nothing_found_is_said_with_how_much_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["read-log", _write(tmp_path, "usb 1-1: new\n" * 7)]) == 0
    assert "nothing found in 7 lines" in capsys.readouterr().out


@pytest.mark.parametrize(
    "data",
    [b"step 1: loss 0.5\nstep 2: loss 0.4\n", gzip.compress(b"a,b\n1,2\n"), b"\x7fELF\0\n\0\1\2"],
    ids=["training log", "packed table", "program"],
)
def test_a_file_that_is_no_kernel_log_is_not_called_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    log = _write(tmp_path, data)
    assert main(["read-log", log]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{log} is no kernel log: 0 of its 2 lines were read as messages" in told.err
    assert "prints, kern.log, /var/log/messages" in told.err
    assert main(["read-log", log, "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["lines"], report["kernel_lines"], report["worst"]) == (2, 0, None)


def test_a_log_of_all_programs_says_how_many_lines_are_the_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = "Nov  3 12:00:01 gpu-1 kernel: hello\n" + "Nov  3 12:00:01 gpu-1 cron[1]: hello\n" * 4
    assert main(["read-log", _write(tmp_path, mixed)]) == 0
    assert "nothing found in 5 lines" in (shown := capsys.readouterr().out)
    assert shown.endswith(", of which 1 were read as messages of the kernel\n")


def test_a_log_that_only_quotes_the_kernel_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quoted = f"Nov  3 12:00:01 gpu-1 python[12]: {_XID}\n"
    assert main(["read-log", _write(tmp_path, quoted)]) == 2
    assert "messages of the kernel (1 of other programs quote it)" in capsys.readouterr().err


def test_xids_of_programs_are_listed_and_are_not_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, words\n"
    assert main(["read-log", _write(tmp_path, line * 2)]) == 0
    shown = capsys.readouterr().out
    assert "Xid 31 of GPU 0000:3b:00.0, memory page fault: 2 times, lines 1 to 2" in shown


def test_a_torn_archive_is_read_up_to_its_end_and_said_to_be_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress((_LOG + "x\n" * 200_000).encode() + os.urandom(100_000))
    assert main(["read-log", _write(tmp_path, whole[:-50_000])]) == 1
    assert "up to line" in capsys.readouterr().err
    harmless = gzip.compress(b"usb\n" * 200_000 + os.urandom(100_000))
    assert main(["read-log", _write(tmp_path, harmless[:-50_000])]) == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty; save a log first: dmesg"),
        (b"LPKSHHRH\0\0\0", "journalctl --file"),
        (b"\x28\xb5\x2f\xfd1234", "zstd -dc"),
        (b"PK\x03\x04....", "unzip"),
    ],
)
def test_what_cannot_be_read_names_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, words: str
) -> None:
    assert main(["read-log", _write(tmp_path, data)]) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_there_and_a_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["read-log", str(tmp_path / "no")]) == 2
    assert "does not exist; see what is there: ls" in capsys.readouterr().err
    assert main(["read-log", str(tmp_path)]) == 2
    assert "is a folder; name a file in it" in capsys.readouterr().err


def test_binary_junk_and_endless_lines_are_read_in_pieces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junk = os.urandom(300_000).replace(b"\n", b" ")
    data = junk + b"\n" + _XID.encode() + b"\n" + b"x" * 1_000_000 + b"\n" + _XID.encode()
    report = _json(capsys, _write(tmp_path, data))
    findings = report["findings"]
    assert isinstance(findings, list)
    assert (report["lines"], findings[0]["line"], findings[0]["last_line"]) == (4, 2, 4)


def test_text_that_could_steer_a_terminal_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        ["read-log", _write(tmp_path, "NVRM: Xid (PCI:0000:3b:00): 79, \x1b]0;title\x07 \x9b2J\n")]
    )
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


def test_a_terminal_that_knows_few_letters_and_one_that_is_gone_are_no_trouble() -> None:
    command = [sys.executable, "-m", "everstep_agent.main", "read-log", "-"]
    line = "NVRM: Xid (PCI:0000:3b:00): 79, Größe \xff\n".encode("latin-1")
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common", "proto"))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, input=line, capture_output=True, env=env, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, b"")
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        command, input=line, stdout=writer, stderr=subprocess.PIPE, env=env, timeout=60
    )
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (1, b"")


def test_a_closed_input_and_a_full_disk_are_said_and_are_no_verdict(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m everstep_agent.main read-log'
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common", "proto"))
    for shell, words in (
        (f"{command} - <&-", b"standard input is closed; name a file"),
        (f"{command} {_write(tmp_path, _LOG)} > /dev/full", b"cannot write: No space left"),
    ):
        ended = subprocess.run(
            ["sh", "-c", shell],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=60,
        )
        assert ended.returncode == 2
        assert words in ended.stderr
        assert b"Traceback" not in ended.stderr


def test_a_reading_that_is_stopped_shows_what_it_found() -> None:
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common", "proto"))
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "everstep_agent.main", "read-log", "-"],
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        os.close(reader)
        # More than the pipe and the reader's buffer hold: when it is written, reading goes on.
        os.write(writer, (_LOG * 20_000).encode())
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    os.close(writer)
    assert b"1 fatal found" in shown
    assert b"you stopped it" in said


def test_standard_input_is_read_by_a_process_that_loads_nothing_heavy(tmp_path: Path) -> None:
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common", "proto"))
    code = (
        "import sys; from everstep_agent.main import main; code = main(['read-log', '-']); "
        "print(sorted({'grpc', 'psutil', 'google', 'asyncio'} & set(sys.modules)), code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        input=gzip.compress(_LOG.encode()),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        timeout=60,
    )
    *_, last = io.StringIO(ended.stdout.decode())
    assert last.strip().endswith("1")
    assert "grpc" not in last
    assert "1 fatal found in 3 lines of standard input" in ended.stdout.decode()


def test_a_rack_event_names_the_culprit_first_and_counts_its_victims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "XC0 i0 Link 14 (0x00000082 0x00000040 0x0 0x0 0x0 0x0)"
    culprit = f"NVRM: Xid (PCI:0008:01:00): 145, RLW_REMAP  Fatal   {where}\n"
    victims = "".join(
        f"NVRM: Xid (PCI:{number % 4:04x}:01:00): 45, pid={number}, name=python, channel"
        f" 0x{number:08x} caused by previous Xid 145\n"
        for number in range(63)
    )
    peers = "".join(
        f"NVRM: Xid (PCI:00{number:02x}:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 14"
        " (0x0215c5c6 0x00000000 0x0 0x0 0x0 0x0)\n"
        for number in range(16, 32)
    )
    main(["read-log", _write(tmp_path, culprit + victims + peers)])
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("FATAL     gpu/0008:01:00.0: reset_device")
    assert "Xid 45, 63 times on 4 GPUs: follows Xid 145 (line 1)" in shown
    assert "the same of 15 others, up to line 80" in shown
    assert len(shown.splitlines()) < 25
