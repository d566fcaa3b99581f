"""Faked node of 8 GPUs and 8 HCAs: a driver's library and a tree like sysfs, as the tests have."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fakes.nvml import FakeDriver
from fakes.sysfs import FakeNode

GPUS = HCAS = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """Node as an agent finds it: keys of its configuration, and variables of its process."""

    config: str
    environment: Mapping[str, str]


def this_machine() -> Machine:
    """Return the machine as it is."""
    return Machine("", os.environ)


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """The fakes, to be changed while an agent watches them."""

    driver: FakeDriver
    sysfs: FakeNode

    @property
    def machine(self) -> Machine:
        """Return what an agent needs to find them."""
        return Machine(f'sysfs = "{self.sysfs.root}"\n', os.environ | self.driver.environment)


@contextlib.contextmanager
def fake_machine(folder: Path) -> Iterator[FakeMachine]:
    """Make the node below a folder."""
    library = folder / "driver"
    library.mkdir()
    driver = FakeDriver(library, GPUS)
    for gpu in range(GPUS):
        # The memory that the fake shows as taken has an owner.
        driver.set_processes(gpu, [(os.getpid(), driver.get(gpu, "memory_used"))])
    sysfs = FakeNode(folder / "sys", hcas=HCAS, gpus=GPUS)
    # The device files belong into /dev, which is this machine's: without these, none is missing.
    shutil.rmtree(sysfs.root / "class/infiniband_verbs")
    try:
        yield FakeMachine(driver, sysfs)
    finally:
        driver.close()
