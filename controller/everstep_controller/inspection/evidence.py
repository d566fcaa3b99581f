"""Hang evidence: the reports of ranks that verdicts were made of, in a bounded folder, by hash.

Nothing is decided by what lies there: a verdict enters the journal whole. It is for people who want
to see what one was made of: ``zcat HASH.jsonl.gz``, one line for each node.
"""

import asyncio
import gzip
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from everstep_common.codec import from_json, to_json
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import ProcessEnding

# 16,384 ranks are some 50 MB, and a few MB here: enough for the hangs of weeks.
FOLDER_BYTES_MAX = 256 * 1024 * 1024
_ENDING = ".jsonl.gz"


class HangEvidence:
    """Folder of evidence of hangs, of its owner only; what is too much is removed, oldest first."""

    def __init__(self, folder: Path, bytes_max: int = FOLDER_BYTES_MAX) -> None:
        self._folder = folder
        self._bytes_max = bytes_max

    def write(self, told: Sequence[NodeTold]) -> Path:
        """Write what nodes told in a look, to be kept or dropped. Raises OSError.

        It takes as long as compressing and writing does: for a thread.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._folder / f".{_hash_of(told)}{_ENDING}"
        with (
            os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=1, mtime=0) as out,
        ):
            for line in _lines(told):
                out.write(line)
        return file

    @asynccontextmanager
    async def written(self, told: Sequence[NodeTold]) -> AsyncGenerator[Path, None]:
        """Have it written within the block, after which it is gone if nobody kept it."""
        file = await asyncio.to_thread(self.write, told)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)

    def keep(self, file: Path) -> str:
        """Keep what was written; return its hash, by which it is named. Raises OSError."""
        kept = file.with_name(file.name.removeprefix("."))
        file.replace(kept)
        self._remove_oldest(kept)
        return kept.name.removesuffix(_ENDING)

    def _remove_oldest(self, newest: Path) -> None:
        """Make room, by the age of files; the newest stays, however large it is."""
        files = sorted(_files(self._folder), key=lambda one: one[1])
        total = sum(size for _, _, size in files)
        for file, _, size in files:
            if total <= self._bytes_max:
                return
            if file != newest:
                with suppress(OSError):
                    file.unlink()
                    total -= size


def read_told(file: Path) -> Iterator[NodeTold]:
    """Yield what nodes told in a look that was written. Raises OSError, and ValueError."""
    with gzip.open(file, "rt") as lines:
        for line in lines:
            told = json.loads(line)
            endings = told.pop("endings", ())
            ended = tuple((rank, from_json(ProcessEnding, how)) for rank, how in endings)
            yield NodeTold(**{**told, "reports": tuple(told["reports"])}, endings=ended)


def _files(folder: Path) -> Iterator[tuple[Path, int, int]]:
    for file in folder.iterdir():
        with suppress(OSError):
            found = file.stat()
            yield file, found.st_mtime_ns, found.st_size


def _hash_of(told: Iterable[NodeTold]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for line in _lines(told):
        digest.update(line)
    return digest.hexdigest()


def _lines(told: Iterable[NodeTold]) -> Iterator[bytes]:
    """Yield a line for each node, with its reports as they came."""
    for node in sorted(told, key=lambda one: one.first_rank):
        line: dict[str, object] = {
            "node": node.node,
            "first_rank": node.first_rank,
            "ranks": node.ranks,
            "missing": node.missing,
            "reports": node.reports,
        }
        if node.endings:
            line["endings"] = [(rank, to_json(how)) for rank, how in node.endings]
        yield (json.dumps(line) + "\n").encode()
