"""Descriptors as memory."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.saving.mapping import Mapping
from fakes.passed_descriptors import sealed_memory, wrong_descriptors


@pytest.fixture
def fd() -> Iterator[int]:
    fd = sealed_memory(10_000)
    os.pwrite(fd, b"a" * 10_000, 0)
    yield fd
    os.close(fd)


def test_what_is_written_is_in_the_memory_behind(fd: int) -> None:
    mapping = Mapping(fd, 10_000, writable=True)
    ctypes.memset(mapping.address + 9_999, ord("z"), 1)
    mapping.close()
    assert os.pread(fd, 2, 9_998) == b"az"


def test_a_read_only_descriptor_is_enough_for_reading(fd: int) -> None:
    read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    mapping = Mapping(read_only, 10_000, writable=False)
    os.close(read_only)
    mapping.prepare(5_000, 5_000)
    assert ctypes.string_at(mapping.address + 9_000, 1_000) == b"a" * 1_000
    mapping.close()


def test_a_read_only_descriptor_is_not_mapped_for_writing(fd: int) -> None:
    read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    with pytest.raises(PermissionError):
        Mapping(read_only, 10_000, writable=True)
    os.close(read_only)


def test_memory_that_is_too_short_is_refused_before_it_is_touched(fd: int) -> None:
    with pytest.raises(ValueError, match="shorter than 10001"):
        Mapping(fd, 10_001, writable=False)


def test_what_is_no_sealed_memory_is_named_and_never_mapped() -> None:
    with wrong_descriptors() as wrong:
        for called, fd in wrong.items():
            with pytest.raises(ValueError, match=f"the agent passed {called}; expected memory"):
                Mapping(fd, 4096, writable=True)


def test_closing_twice_unmaps_once(fd: int) -> None:
    mapping = Mapping(fd, 10_000, writable=False)
    mapping.close()
    other = Mapping(fd, 10_000, writable=False)
    mapping.close()
    assert ctypes.string_at(other.address, 1) == b"a"
    other.close()


def test_a_forked_child_has_none_of_it_and_unmaps_nothing_of_its_own(fd: int) -> None:
    mapping = Mapping(fd, 4096, writable=True)
    child = os.fork()
    if child == 0:
        is_there = f"{mapping.address:x}-" in Path("/proc/self/maps").read_text()
        with mmap.mmap(-1, 4096) as own:
            mapping.address = ctypes.addressof(ctypes.c_char.from_buffer(own))
            mapping.close()
            own[0] = 1  # it would be killed here
            os._exit(int(is_there))
    assert os.waitpid(child, 0)[1] == 0
    mapping.close()
