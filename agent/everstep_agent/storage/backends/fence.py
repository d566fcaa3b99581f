"""Fence of a shared folder: an older generation changes nothing, however late it wakes up.

A generation that begins makes its folder, then takes away what older ones have prepared: unnamed
files that were to become ``latest``, and the bins into which they move what they remove. Who looked
before that folder was there has nothing left to rename, or no place for it; who looks later sees
the folder. So it takes no lock, which a stopped process could hold for ever.
"""

import errno
import os
import re

from everstep_agent.storage.backends.backend import BackendError
from everstep_agent.storage.backends.files import (
    leftover_files,
    remove_if_present,
    subfolder,
)

_GENERATION = re.compile(r"gen-([1-9][0-9]{0,17})")
_STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")
_POINTERS = re.compile(r"\.latest-gen-(\d+)\.[0-9a-f]{16}\.tmp")
# Files that may be removed; anything else that a user put there stays, and so does the folder.
OWN_FILES = re.compile(
    r"manifest\.json|save\.json|rank-[0-9]{1,9}\.(safetensors|json|own|own\.json)|\..+\.tmp"
)
# How a generation began, in its folder.
BEGINNING = "began.json"
# Where a generation moves what it removes, inside its own folder.
TRASH_FOLDER = ".removed"
_TRIES = 10


def list_generations(root: int) -> list[int]:
    """Return the generations that have a folder."""
    return _numbers(root, _GENERATION)


def list_steps(generation: int) -> list[int]:
    """Return the steps in the folder of a generation."""
    return _numbers(generation, _STEP)


def newest_generation(root: int) -> int:
    """Return the newest generation; 0 when there is none."""
    return max(list_generations(root), default=0)


def refuse_overtaken(root: int, generation: int) -> None:
    """Raise BackendError when a newer generation has begun."""
    found = newest_generation(root)
    if found > generation:
        raise BackendError(f"generation {found} has taken over from {generation}")


def fenced_off_error(generation: int) -> BackendError:
    """Return what to say to one that looked in time and came too late."""
    return BackendError(f"generation {generation} was fenced off at the last moment")


def revoke_older(root: int, generation: int) -> None:
    """Take away what older generations prepared, and what this one left behind."""
    for found in os.listdir(root):
        pointer = _POINTERS.fullmatch(found)
        if pointer and int(pointer[1]) <= generation:
            remove_if_present(root, found)
    for number in list_generations(root):
        if number > generation:
            continue
        with subfolder(root, f"gen-{number}") as folder:
            # Of its own only what came too late: another member may be writing the first one.
            if number < generation or BEGINNING in os.listdir(folder):
                for left in list(leftover_files(folder, BEGINNING)):
                    remove_if_present(folder, left)
            if number < generation:
                empty_trash(folder)


def empty_trash(generation: int) -> None:
    """Remove what is in the bin of a generation, and the bin."""
    for _ in range(_TRIES):
        try:
            with subfolder(generation, TRASH_FOLDER) as bin_folder:
                for name in os.listdir(bin_folder):
                    _remove(bin_folder, name)
            os.rmdir(TRASH_FOLDER, dir_fd=generation)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # somebody filled it again meanwhile
                raise
    raise BackendError("an older generation goes on removing steps")


def _remove(bin_folder: int, name: str) -> None:
    with subfolder(bin_folder, name) as step:
        for found in filter(OWN_FILES.fullmatch, os.listdir(step)):
            remove_if_present(step, found)
    os.rmdir(name, dir_fd=bin_folder)


def _numbers(folder: int, pattern: re.Pattern[str]) -> list[int]:
    found = map(pattern.fullmatch, os.listdir(folder))
    return sorted(int(matched[1]) for matched in found if matched)
