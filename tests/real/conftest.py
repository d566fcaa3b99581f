"""Tests with real servers: what one process of pytest mounts, no other of them sees.

An agent finds every mount of its machine, and a container keeps a copy of each: without this, a
mount that one test lets hang makes nodes of another test suspect.
"""

import ctypes
import os

import pytest

_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x4000 | 0x40000


@pytest.fixture(scope="session", autouse=True)
def _mounts_of_its_own() -> None:
    """Move into a mount namespace of its own, as root: others cannot mount anyway."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for done in (
        libc.unshare(_CLONE_NEWNS),
        libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None),
    ):
        if done:
            raise OSError(ctypes.get_errno(), "a mount namespace for the tests cannot be made")
