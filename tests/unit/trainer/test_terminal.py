"""What a launcher shows."""

import io
from pathlib import Path

from everstep.launch.terminal import LineWriter, Terminal


def test_lines_are_whole_whatever_the_pieces(tmp_path: Path) -> None:
    out, error = io.BytesIO(), io.BytesIO()
    writer = LineWriter(Terminal(out, error), 3, tmp_path / "log", is_error=False)
    for piece in (b"a", b"b\nc\n", b"", b"\n", b"d"):
        writer.write(piece)
    assert out.getvalue() == b"[3] ab\n[3] c\n[3] \n"
    writer.close()
    assert out.getvalue().endswith(b"[3] d\n")
    assert error.getvalue() == b""
    assert list(writer.last_lines) == ["ab", "c", "", "d"]
    assert (tmp_path / "log").read_bytes() == b"ab\nc\n\nd"


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    error = io.BytesIO()
    writer = LineWriter(Terminal(io.BytesIO(), error), 0, None, is_error=True)
    for _ in range(3):
        writer.write(b"x" * 700_000)
    assert error.getvalue().count(b"\n") == 1
    writer.close()
    assert error.getvalue().count(b"x") == 2_100_000


def test_a_terminal_that_is_closed_stops_nothing() -> None:
    closed = io.BytesIO()
    closed.close()
    Terminal(closed, closed).say("on we go")
