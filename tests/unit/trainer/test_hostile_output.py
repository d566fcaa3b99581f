"""What ranks and operators write: it steers no terminal, and hides no exception."""

import os
from pathlib import Path

import pytest

from everstep.launch.output.line_writer import LineDestination, LineWriter
from everstep.launch.output.terminal import Terminal

HEAD = "Traceback (most recent call last):"


class Reader:
    """A sink that takes everything."""

    def __init__(self) -> None:
        self.data = bytearray()

    def fileno(self) -> int:
        return -1

    def writable(self, timeout_s: float) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("in " + os.fsdecode(b"/d/x-\xff"), r"in /d/x-\udcff"),
        ("planned (root): fans\nrank 0 died\r\x07", r"planned (root): fans\nrank 0 died\r\x07"),
        ("\x1b[31mValueError\x1b[0m: \x1b]0;title\x07模型", "ValueError: 模型"),
        ("  a\tb", "  a     b"),
    ],
)
def test_what_others_have_put_in_a_sentence_steers_no_terminal(sentence: str, shown: str) -> None:
    error = Reader()
    Terminal(Reader(), error).say(sentence)
    assert error.data.decode() == f"everstep: {shown}\n"


def test_after_a_line_of_megabytes_the_exception_is_still_what_is_kept() -> None:
    error = Reader()
    writer = LineWriter(Terminal(Reader(), error), LineDestination(b"", is_error=True))
    for _ in range(10):
        writer.write(b"z" * 300_000)
    writer.write(f"{HEAD}\n  File 'x'\nValueError: bad\n".encode())
    writer.close()
    assert writer.traceback.lines == (HEAD, "  File 'x'", "ValueError: bad")
    assert max(map(len, writer.last_lines)) <= 8 * 1024
    assert error.data.count(b"z") == 3_000_000


def test_a_log_file_is_not_written_through_a_link_that_somebody_has_put_there(
    tmp_path: Path,
) -> None:
    victim, log = tmp_path / "bashrc", tmp_path / "logs/0/stdout.log"
    victim.write_bytes(b"mine\n")
    log.parent.mkdir(parents=True)
    log.symlink_to(victim)
    error = Reader()
    writer = LineWriter(Terminal(Reader(), error), LineDestination(b"", is_error=True, log=log))
    writer.write(b"evil\n")
    writer.close()
    assert victim.read_bytes() == b"mine\n"
    assert b"evil" in error.data
