"""What a launcher shows, to readers that read and to others."""

import errno
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.output.line_writer import LineDestination, LineWriter
from everstep.launch.output.output_queue import KEPT_BYTES_MAX, OutputQueue
from everstep.launch.output.overflow import Overflow
from everstep.launch.output.terminal import Terminal


class Reader:
    """A sink that takes as much as it is told to."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.data = b""
        self.error: OSError | None = None

    def fileno(self) -> int:
        return -1

    def writable(self, timeout_s: float) -> bool:
        return bool(self.room)

    def write(self, data: bytes) -> int:
        if self.error:
            raise self.error
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.data += taken
        return len(taken)


class Screen(Reader):
    """A sink that is a terminal."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def fileno(self) -> int:
        return self._fd


@pytest.fixture
def screens() -> Iterator[tuple[Screen, Screen]]:
    """Return standard output and error of one terminal."""
    master, slave = os.openpty()
    yield Screen(slave), Screen(slave)
    os.close(master)
    os.close(slave)


@pytest.fixture
def out() -> Reader:
    return Reader()


@pytest.fixture
def error() -> Reader:
    return Reader()


def test_lines_are_whole_whatever_the_pieces(tmp_path: Path, out: Reader, error: Reader) -> None:
    looked: list[bytes] = []
    place = LineDestination(b"[3] ", is_error=False, log=tmp_path / "log")
    writer = LineWriter(Terminal(out, error), place, looked.append)
    for piece in (b"a", b"b\nc\n", b"", b"\n", b"e\r", b"\nd"):
        writer.write(piece)
    assert out.data == b"[3] ab\n[3] c\n[3] \n[3] e\n"
    writer.close()
    assert out.data.endswith(b"[3] d\n")
    assert error.data == b""
    assert list(writer.last_lines) == ["ab", "c", "", "e", "d"]
    assert looked == [b"ab", b"c", b"", b"e", b"d"]
    assert (tmp_path / "log").read_bytes() == b"ab\nc\n\ne\r\nd"


def test_a_progress_bar_is_seen_while_it_grows(out: Reader, error: Reader) -> None:
    looked: list[bytes] = []
    writer = LineWriter(Terminal(out, error), LineDestination(b"", is_error=True), looked.append)
    for i in range(3):
        writer.write(b"\r%d/3" % i)
    assert error.data == b"0/3\r1/3\r"
    writer.write(b"\n")
    assert error.data == b"0/3\r1/3\r2/3\n"
    assert looked == [b"0/3", b"1/3", b"2/3"]
    assert list(writer.last_lines) == ["2/3"]


def test_a_line_takes_the_place_of_a_progress_bar_on_a_terminal(
    screens: tuple[Screen, Screen],
) -> None:
    out, error = screens
    terminal = Terminal(out, error)
    bar = LineWriter(terminal, LineDestination(b"[0] ", is_error=True))
    lines = LineWriter(terminal, LineDestination(b"[1] ", is_error=False))
    bar.write(b"\r1/3 loss=7.662\r2/3")
    terminal.say("rank 1 is gone")
    terminal.say("so it is")
    bar.write(b"\r3/3")
    lines.write(b"step 3\nstep 4\n")
    assert error.data == (
        b"[0] 1/3 loss=7.662\r\x1b[Keverstep: rank 1 is gone\neverstep: so it is\n[0] 2/3\r"
    )
    assert out.data == b"\x1b[K[1] step 3\n[1] step 4\n"


def test_what_is_no_terminal_gets_no_characters_that_steer_one(out: Reader, error: Reader) -> None:
    terminal = Terminal(out, error)
    LineWriter(terminal, LineDestination(b"", is_error=True)).write(b"\r1/3\r2/3")
    terminal.say("rank 1 is gone")
    assert error.data == b"1/3\reverstep: rank 1 is gone\n"


def test_a_line_without_end_does_not_fill_the_memory(out: Reader, error: Reader) -> None:
    writer = LineWriter(Terminal(out, error), LineDestination(b"[0] ", is_error=True))
    for _ in range(3):
        writer.write(b"x" * 700_000)
    assert error.data.count(b"\n") == 1
    writer.close()
    assert error.data.count(b"x") == 2_100_000


def test_what_is_not_shown_is_still_looked_at(out: Reader, error: Reader) -> None:
    looked: list[bytes] = []
    writer = LineWriter(
        Terminal(out, error), LineDestination(b"", is_error=True, shown=False), looked.append
    )
    writer.write(b"Traceback (most recent call last):\n")
    assert (error.data, len(looked)) == (b"", 1)
    assert writer.traceback.began_ns is not None


def test_what_no_file_takes_is_shown_rather_than_lost(tmp_path: Path, out: Reader) -> None:
    (tmp_path / "file").touch()
    place = LineDestination(
        b"[3] ", is_error=False, shown=False, log=tmp_path / "file" / "rank-3.out"
    )
    LineWriter(Terminal(out, Reader()), place).write(b"a\n")
    assert out.data == b"[3] a\n"


def test_what_a_full_disk_does_not_take_is_shown_and_said_once(out: Reader, error: Reader) -> None:
    terminal = Terminal(out, error)
    places = [
        LineDestination(b"[%d] " % rank, is_error=False, shown=False, log=Path("/dev/full"))
        for rank in (0, 1)
    ]
    for writer in [LineWriter(terminal, place) for place in places]:
        writer.write(b"a\nb")
        writer.write(b"c\n")
        writer.close()
    assert out.data == b"[0] a\n[0] bc\n[1] a\n[1] bc\n"
    assert error.data == (
        b"everstep: /dev takes no more output (No space left on device); all of it is shown here\n"
    )


def test_of_a_write_that_a_file_takes_in_part_nothing_is_lost(tmp_path: Path, out: Reader) -> None:
    place = LineDestination(b"", is_error=False, shown=False, log=tmp_path / "gen-1" / "rank-0.out")
    writer = LineWriter(Terminal(out, Reader()), place)
    writer.write(b"a\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        writer.write(b"b\nc\nd\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.write(b"e\n")
    assert out.data == b"b\nc\nd\ne\n"
    assert (tmp_path / "gen-1" / "rank-0.out").read_bytes() == b"a\nb\n"


def test_a_reader_that_pauses_gets_everything_in_order(tmp_path: Path) -> None:
    reader = Reader(room=4)
    queue = OutputQueue(reader, Overflow(tmp_path, 1))
    for i in range(5):
        queue.put(b"line %d\n" % i)
    assert reader.data == b"line"
    reader.room = 1 << 40
    assert queue.advance() == 0
    assert reader.data == b"line 0\nline 1\nline 2\nline 3\nline 4\n"
    assert not queue.waiting
    assert not list(tmp_path.iterdir())


def test_what_is_too_much_for_the_memory_goes_to_a_file(tmp_path: Path) -> None:
    reader = Reader(room=0)
    overflow = Overflow(tmp_path, 1)
    queue = OutputQueue(reader, overflow)
    queue.put(b"a" * KEPT_BYTES_MAX)
    queue.put(b"b" * 10)
    queue.put(b"c")
    assert queue.unseen_bytes == 11
    assert Path(overflow.path).read_bytes() == b"b" * 10 + b"c"
    reader.room = 1 << 40
    assert queue.advance() == 11
    assert queue.unseen_bytes == 0
    queue.put(b"d")
    assert reader.data == b"a" * KEPT_BYTES_MAX + b"d"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_reader_that_goes_away_is_told_of_to_the_other(
    tmp_path: Path, out: Reader, error: Reader, number: int
) -> None:
    terminal = Terminal(out, error, tmp_path)
    terminal.line(b"seen", to_error=False)
    out.error = OSError(number, "gone")
    terminal.line(b"not seen", to_error=False)
    terminal.line(b"nor this", to_error=False)
    terminal.finish()
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"not seen\nnor this\n"
    assert out.data == b"seen\n"


def test_nothing_is_lost_when_the_end_comes_and_nobody_reads(tmp_path: Path, error: Reader) -> None:
    terminal = Terminal(Reader(room=0), error, tmp_path)
    terminal.line(b"a", to_error=False)
    terminal.line(b"b", to_error=False)
    terminal.finish()
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"a\nb\n"
    assert str(path) in error.data.decode()


def test_no_disk_and_no_reader_stop_nothing() -> None:
    reader = Reader()
    reader.error = OSError(errno.EIO, "gone")
    overflow = Overflow(Path("/proc/none"), 1, fallback=Path("/proc/none"))
    queue = OutputQueue(reader, overflow)
    queue.put(b"on we go")
    assert overflow.lost_bytes == len(b"on we go")


def test_what_no_disk_takes_for_a_while_is_told_and_what_comes_after_is_found(
    tmp_path: Path,
) -> None:
    overflow = Overflow(tmp_path, 1, bytes_max=100)
    overflow.write(b"before" * 10)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        overflow.write(b"lost")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    overflow.write(b"after")
    aside = Path(f"{overflow.path}.old")
    assert (aside.read_bytes(), Path(overflow.path).read_bytes()) == (b"before" * 10, b"after")
    assert overflow.place == f"{overflow.path} (before that, {aside}); no disk took 4 bytes"


def test_a_job_that_ended_well_leaves_no_file_to_who_has_read_on(
    tmp_path: Path, error: Reader
) -> None:
    reader = Reader(room=0)
    terminal = Terminal(reader, error, tmp_path)
    for letter in (b"a", b"b", b"c", b"d", b"e"):
        terminal.line(letter * (KEPT_BYTES_MAX // 3), to_error=False)
    assert len(list(tmp_path.iterdir())) == 1
    reader.room = 1 << 40
    terminal.finish(succeeded=True)
    assert not list(tmp_path.iterdir())
    assert b"were not read here; they are in" in reader.data
    assert b"is removed, for all went well" in error.data


@pytest.mark.parametrize(("room", "succeeded"), [(1 << 40, False), (0, True), (0, False)])
def test_after_a_failure_and_for_who_never_read_on_the_file_stays_and_is_named(
    tmp_path: Path, error: Reader, room: int, succeeded: bool
) -> None:
    reader = Reader(room=0)
    terminal = Terminal(reader, error, tmp_path)
    for letter in (b"a", b"b", b"c", b"d", b"e"):
        terminal.line(letter * (KEPT_BYTES_MAX // 3), to_error=False)
    reader.room = room
    terminal.finish(succeeded=succeeded)
    (path,) = tmp_path.iterdir()
    assert f"output that was not read is in {path}" in error.data.decode()


def test_the_file_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    overflow = Overflow(tmp_path, 1, bytes_max=200)
    for number in range(100):
        overflow.write(b"line %03d\n" % number)
    kept = Path(f"{overflow.path}.old").read_bytes() + Path(overflow.path).read_bytes()
    assert len(kept) <= 200
    lines = kept.decode().splitlines()
    assert lines == [f"line {number:03}" for number in range(100 - len(lines), 100)]
    assert overflow.dropped_bytes == 900 - len(kept)
    assert f"the oldest {overflow.dropped_bytes} bytes are gone" in overflow.place
    assert stat.S_IMODE(Path(overflow.path).stat().st_mode) == 0o600
    overflow.remove()
    assert not list(tmp_path.iterdir())


def test_what_launchers_left_long_ago_is_removed_by_one_that_needs_such_a_file(
    tmp_path: Path,
) -> None:
    names = (
        "everstep-output-7-abc.txt",
        "everstep-output-7-abc.txt.old",
        "everstep-output-8-x.txt",
    )
    for name in (*names, "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "everstep-output-9-folder.txt").mkdir()
    long_ago = (tmp_path / names[0]).stat().st_mtime - 8 * 86_400
    for path in tmp_path.iterdir():
        if path.name != names[2]:
            os.utime(path, (long_ago, long_ago))
    overflow = Overflow(tmp_path, 1)
    overflow.write(b"x")
    left = {path.name for path in tmp_path.iterdir()} - {Path(overflow.path).name}
    assert left == {names[2], "notes.txt", "everstep-output-9-folder.txt"}
