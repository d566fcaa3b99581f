"""Snapshot options of ``everstep run``: where the state is kept, how often, in what memory."""

import argparse
import errno
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep_common.mount_points import MountTables
from everstep_common.reports import Storage
from everstep_common.storage_environment import credentials

# Ten minutes of work is what losing all nodes at once may cost, where nobody says otherwise.
_PERSIST_S = 600.0
# Seconds of a lifetime, and more steps than any job makes: less often than that is never.
_RARELY_MAX = 10**9
# As many as the agent ever keeps; more is no other wish.
_KEEP_MAX = 10_000
# Also what is meant for a bucket and has a slash too few.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/\s]+)*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B?|B?)", re.IGNORECASE)
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
# A page: nobody means less.
_SIZE_MIN = 4096
_MOUNTS = MountTables()


class KeepError(Exception):
    """An option cannot be used; one sentence with the next step."""


@dataclass(frozen=True, slots=True)
class KeepOptions:
    """Options on snapshots. 0 leaves it to the controller (every), or says nothing (memory)."""

    storage: Storage | None = None
    every_min: int = 0
    every_max: int = 0
    memory_bytes: int = 0
    fresh: bool = False
    continues: bool = False
    # Whether the job's folder there has something of a generation of it.
    begun: bool = False
    # What lets the user into a bucket (AWS_…).
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def bucket(self) -> str:
        """Return the bucket of --persist; "": there is none, or it is a folder."""
        path = "" if self.storage is None else self.storage.path
        return path if path.startswith("s3://") else ""

    @property
    def persist_folder(self) -> str:
        """Return the folder of --persist; "": there is none, or it is a bucket."""
        path = "" if self.storage is None else self.storage.path
        return "" if self.bucket else path


def add_keep_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser know them."""
    group = parser.add_argument_group(
        "snapshots and storage",
        "Snapshots are kept in the memory of two nodes. With --persist, steps are also\n"
        "written to storage: they survive the loss of all nodes, and another job can go\n"
        "on from them.",
    )
    add = group.add_argument
    add(
        "--persist",
        metavar="PATH",
        help="write steps to this folder, which all nodes share, or to s3://BUCKET/PREFIX, as"
        " safetensors files in PATH/NAME/gen-G/step-N; a job that finds steps there goes on from"
        " the latest",
    )
    add("--persist-every", type=int, metavar="STEPS", help="store one step in STEPS")
    add(
        "--persist-seconds",
        type=float,
        metavar="S",
        help="store one step every S seconds (default 600, unless --persist-every is given)",
    )
    add("--persist-keep", type=int, default=2, metavar="N", help="keep the newest N (default 2)")
    add(
        "--snapshot-every",
        default="auto",
        metavar="N|MIN:MAX|auto",
        help="steps from one snapshot in memory to the next (default auto: every step, or the"
        " interval that costs least, from the measured cost of snapshots and faults)",
    )
    add(
        "--snapshot-memory",
        metavar="SIZE",
        help="size of one process's state, for example 12GiB: a node on which its snapshots do not"
        " fit refuses the job at once instead of skipping them later",
    )
    add(
        "--fresh",
        action="store_true",
        help="start from scratch, and ignore the state that an earlier job of this name left in"
        " memory or in storage (default: go on from its newest step)",
    )
    add(
        "--continue",
        dest="continues",
        action="store_true",
        help="go on from what the --persist path has, though another job, or the same one under"
        " another controller, has brought it there (default: that is an error)",
    )


def keep_options(
    values: argparse.Namespace, environ: Mapping[str, str] = os.environ, job: str = ""
) -> KeepOptions:
    """Return what was asked for, checked here and now. Raises KeepError."""
    if values.fresh and values.continues:
        raise KeepError("--fresh and --continue each say where to begin: give one of them")
    every = _every(values.snapshot_every)
    memory = (
        size_bytes("--snapshot-memory", values.snapshot_memory) if values.snapshot_memory else 0
    )
    storage = _storage(values)
    in_bucket = storage is not None and storage.path.startswith("s3://")
    environment = credentials(environ) if in_bucket else {}
    begun = storage is not None and not in_bucket and _has_begun(storage.path, job)
    return KeepOptions(storage, *every, memory, values.fresh, values.continues, begun, environment)


def _storage(values: argparse.Namespace) -> Storage | None:
    if values.persist is None:
        for name in ("persist_every", "persist_seconds"):
            if getattr(values, name) is not None:
                option = "--" + name.replace("_", "-")
                raise KeepError(f"{option} needs --persist PATH: it says how often, not where")
        return None
    every_steps, every_s = values.persist_every, values.persist_seconds
    for name, given in (("--persist-every", every_steps), ("--persist-seconds", every_s)):
        if given is not None and not 0 < given <= _RARELY_MAX:
            raise KeepError(f"{name} {given:g}: it must be above 0, and at most {_RARELY_MAX}")
    if values.persist_keep < 2:
        raise KeepError("--persist-keep must be at least 2: the newest step may prove to be bad")
    if every_steps is None and every_s is None:
        every_s = _PERSIST_S
    bucket = values.persist.startswith("s3://")
    return Storage(
        path=_bucket(values.persist) if bucket else _folder(values.persist),
        every_steps=every_steps or 0,
        every_ns=round((every_s or 0.0) * 1e9),
        keep=min(values.persist_keep, _KEEP_MAX),
    )


def _has_begun(path: str, job: str) -> bool:
    """Return whether a job's folder has something of a generation."""
    try:
        return any(name.startswith("gen-") for name in os.listdir(os.path.join(path, job)))
    except OSError:
        return False


def _folder(text: str, mounts: MountTables = _MOUNTS) -> str:
    """Return the absolute path of a folder that can be written; one below its parent is made."""
    path = os.path.abspath(os.path.expanduser(text))
    if not text.strip() or _SCHEME.match(text):
        raise KeepError(f"--persist {text!r}: name a folder, or s3://BUCKET/PREFIX")
    if os.fsencode(path).decode(errors="ignore") != path:
        raise KeepError(f"--persist {text!r}: name a folder whose path is Unicode text (UTF-8)")
    if point := mounts.unmounted_point(path):
        # Made in silence, it would be on the disk below, and hidden when the right one is there.
        raise KeepError(
            f"--persist {path}: {point} is a mount point, and nothing is mounted there on this"
            " node; mount it, or correct the path"
        )
    advice = "name a folder that you may write, on storage that all nodes of the job share"
    try:
        _make(path)
    except FileNotFoundError as error:
        parent = os.path.dirname(path)
        if os.path.isdir(parent):  # of the kernel's own, such as /proc
            raise KeepError(f"--persist {path}: {parent} takes no folder; {advice}") from error
        # Made in silence, it would be on the root disk, where a mount is missing or misspelt.
        raise KeepError(
            f"--persist {path}: there is no {parent} on this node; mount it, "
            "correct the path, or make that folder"
        ) from error
    except OSError as error:
        raise KeepError(f"--persist {path}: {error.strerror or error}; {advice}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise KeepError(f"--persist {path}: it may not be written by you; {advice}")
    return path


def _make(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError as error:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def _bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text.rstrip("/")):
        raise KeepError(
            f"--persist {text}: expected s3://BUCKET/PREFIX, for example s3://models/runs"
        )
    return text.rstrip("/")


def _every(text: str) -> tuple[int, int]:
    """Return the least and the most steps that ``5``, ``1:20`` or ``auto`` means."""
    if text == "auto":
        return 0, 0
    matched = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)
    if matched:
        least, most = int(matched[1]), int(matched[2] or matched[1])
        if 1 <= least <= most:
            return least, most
    raise KeepError(f"--snapshot-every {text!r}: expected a number, MIN:MAX from 1 up, or auto")


def size_bytes(option: str, text: str) -> int:
    """Return what ``12GiB`` or ``500MB`` means. Raises KeepError, which names the option."""
    matched = _SIZE.fullmatch(text.strip())
    if matched:
        unit = matched[2].upper().rstrip("B")
        base = 1024 if unit.endswith("I") else 1000
        size = round(float(matched[1]) * math.pow(base, _UNITS[unit[:1]]))
        if 0 < size < _SIZE_MIN:
            told = f"that is {size} bytes; name the unit, for example {matched[1]}GiB"
            raise KeepError(f"{option} {text!r}: {told}")
        if 0 < size < 1 << 62:
            return size
    raise KeepError(f"{option} {text!r}: expected a size, for example 12GiB")
