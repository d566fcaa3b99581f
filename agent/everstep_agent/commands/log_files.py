"""Saved log file: opened whatever it is packed in, and read in pieces of bounded size."""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from everstep_agent.detectors.kernel.logs.log_reading import NumberedLine

# A line longer than this is read in pieces.
_LINE_CHARS = 1 << 16
_LINES_PER_PIECE = 2000
_MAGIC_BYTES = 8
_TORN = (OSError, EOFError, zlib.error, lzma.LZMAError)


class LogFileError(Exception):
    """The log cannot be read; one sentence says why, and what to type instead."""


_REFUSED = {
    b"LPKSHHRH": "is a journal in binary form; export it first: journalctl --file {name} -k",
    b"\x28\xb5\x2f\xfd": "is packed with zstd; unpack it first: zstd -dc {name} | "
    "everstep-agent read-log -",
    b"PK\x03\x04": "is a zip archive; unpack it first: unzip {name}",
}

_PACKED: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file)),
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}


class LogFile:
    """One log, read once. ``torn`` says why it could not be read to its end; empty: it could."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.torn = ""
        self._packed = _opened(name)
        try:
            self._text = _unpacked(self._packed, name)
        except LogFileError:
            self._packed.close()
            raise

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        # Closing the decompressor does not close the file that it reads from.
        self._text.close()
        self._packed.close()

    def pieces(self) -> Iterator[list[NumberedLine]]:
        """Return the lines, some thousand at a time."""
        piece: list[NumberedLine] = []
        for line in self._lines():
            piece.append(line)
            if len(piece) >= _LINES_PER_PIECE:
                yield piece
                piece = []
        yield piece

    def _lines(self) -> Iterator[NumberedLine]:
        number, ended = 0, True
        while text := self._next():
            number += ended
            ended = text.endswith("\n")
            yield NumberedLine(number, text)

    def _next(self) -> str:
        try:
            return self._text.readline(_LINE_CHARS)
        except _TORN as error:
            self.torn = str(error) or type(error).__name__
            return ""


def _opened(name: str) -> io.BufferedReader:
    if name == "-":
        if sys.stdin is None:
            raise LogFileError("standard input is closed; name a file")
        return cast("io.BufferedReader", sys.stdin.buffer)
    path = Path(name)
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        near = path.parent if path.parent.is_dir() else Path(".")
        raise LogFileError(f"{name} does not exist; see what is there: ls {near}") from error
    except IsADirectoryError as error:
        raise LogFileError(f"{name} is a folder; name a file in it: ls {name}") from error
    except PermissionError as error:
        raise LogFileError(
            f"{name} may not be read by you; try: sudo cat {name} | everstep-agent read-log -"
        ) from error
    except OSError as error:
        raise LogFileError(f"{name} cannot be opened: {error.strerror}") from error


def _unpacked(file: io.BufferedReader, name: str) -> io.TextIOWrapper:
    try:
        begin = file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
    except OSError as error:
        raise LogFileError(f"{name} cannot be read: {error.strerror}") from error
    for magic, why in _REFUSED.items():
        if begin.startswith(magic):
            raise LogFileError(f"{name} {why.format(name=name)}")
    unpacker = next((open_ for magic, open_ in _PACKED.items() if begin.startswith(magic)), None)
    unpacked = unpacker(file) if unpacker else file
    encoding = _encoding(begin if unpacked is file else _first_bytes(unpacked))
    return io.TextIOWrapper(unpacked, encoding=encoding, errors="replace", newline="\n")


def _first_bytes(unpacked: IO[bytes]) -> bytes:
    try:
        begin = unpacked.read(_MAGIC_BYTES)
        unpacked.seek(0)
    except _TORN:
        # The first read of a line says so.
        return b""
    return begin


def _encoding(begin: bytes) -> str:
    """Return what editors of Windows write, with or without a mark; UTF-8 in all other cases."""
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if len(begin) == _MAGIC_BYTES and not any(begin[1::2]) and all(begin[::2]):
        return "utf-16-le"
    return "utf-8"
