"""Fault latency as JSON: from each of a series of faults until the controller tells of it.

``xid`` appends a kernel line, ``link`` takes a real interface down (in a network namespace of its
own), ``ecc`` and ``hca`` raise a counter that the agent polls, ``bare`` sends the same finding on a
bare stream: what controller, journal and loopback need without an agent.
"""

import argparse
import contextlib
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.arrivals import Arrivals, BareStream
from agent.machines import GPUS, HCAS, FakeMachine, Machine, fake_machine, this_machine
from harness.daemons import agent_command, controller_command, shown
from harness.processes import free_port, running, wait_for_port

# The kernel's interfaces come up, conditions with a grace after boot are past it.
_SETTLE_S = 5.0
# The longest pause between faults: they must not keep step with what polls.
_PAUSE_S = {"bare": 0.3, "xid": 0.3, "link": 0.3, "ecc": 1.0, "hca": 5.0}

# Makes the fault of a number; returns the condition, and what its message names.
Fault = Callable[[int], tuple[str, str]]


def samples(fault: Fault, arrivals: Arrivals, count: int, pause_s: float) -> Iterator[float]:
    """Yield the seconds from each fault to its finding at a client of the controller."""
    rng = random.Random(7)
    for number in range(count):
        time.sleep(pause_s * rng.random())
        began = time.monotonic()
        condition, word = fault(number)
        yield arrivals.wait(condition, word) - began


def _pci(number: int) -> str:
    # None of the faked GPUs: of those, the driver's word that all is well would count.
    return f"{number // 256 + 1:04x}:{number % 256:02x}:00.0"


def bare_fault(stream: BareStream) -> Fault:
    """Return what sends a finding about another GPU each time."""

    def send(number: int) -> tuple[str, str]:
        stream.send(_pci(number))
        return "XidFatal", _pci(number)

    return send


def xid_fault(log: Path) -> Fault:
    """Return what writes a line about another GPU each time."""

    def write(number: int) -> tuple[str, str]:
        line = f"NVRM: Xid (PCI:{_pci(number)}): 79, pid=1, GPU has fallen off the bus.\n"
        with log.open("a") as file:
            file.write(line)
        return "XidFatal", _pci(number)

    return write


def link_fault(number: int) -> tuple[str, str]:
    """Take another interface down each time."""
    name = _link(number)
    subprocess.run(["ip", "link", "set", name, "down"], check=True)
    return "LinkDown", f"{name} "


def ecc_fault(fakes: FakeMachine) -> Fault:
    """Return what lets another GPU count an uncorrectable error each time."""

    def count(number: int) -> tuple[str, str]:
        fakes.driver.set(number, ecc_uncorrected=1)
        return "GpuEccUncorrected", ""

    return count


def hca_fault(fakes: FakeMachine) -> Fault:
    """Return what lets the buffers of another HCA overrun each time."""

    def count(number: int) -> tuple[str, str]:
        fakes.sysfs.set_counter(f"mlx5_{number}", "excessive_buffer_overrun_errors", 1)
        return "IbBufferOverrun", f"mlx5_{number}"

    return count


def _link(number: int) -> str:
    return f"vt{number:03}"


def make_links(count: int) -> str:
    """Make pairs of interfaces that must be up; return how the agent is told."""
    for name in map(_link, range(count)):
        pair = ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"]
        subprocess.run(pair, check=True)
        for end in (name, f"{name}p"):
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
    return f"links_required = {json.dumps([_link(number) for number in range(count)])}\n"


@contextlib.contextmanager
def watched(folder: Path, machine: Machine) -> Iterator[tuple[int, Arrivals]]:
    """Run a controller and an agent; yield the controller's port, and what it tells."""
    port, metrics_port = free_port(), free_port()
    command = agent_command(folder, port, metrics_port, machine.config)
    with (
        running(controller_command(folder, port)) as controller,
        running(command, machine.environment) as agent,
    ):
        wait_for_port(port, controller)
        wait_for_port(metrics_port, agent)
        arrivals = Arrivals(port, shown(folder))
        time.sleep(_SETTLE_S)
        yield port, arrivals
        arrivals.close()


def measure(kind: str, count: int, folder: Path) -> list[float]:
    """Return the samples of one kind."""
    if kind == "link":
        # Real interfaces, so the real sysfs.
        machine = Machine(make_links(count), this_machine().environment)
        with watched(folder, machine) as (_, arrivals):
            return list(samples(link_fault, arrivals, count, _PAUSE_S[kind]))
    with fake_machine(folder) as fakes:
        log = folder / "kernel.log"
        log.touch()
        config = f'kernel_log = "{log}"\n{fakes.machine.config}'
        with (
            watched(folder, Machine(config, fakes.machine.environment)) as (port, arrivals),
            contextlib.closing(BareStream(port, shown(folder))) as stream,
        ):
            faults = {
                "bare": bare_fault(stream),
                "xid": xid_fault(log),
                "ecc": ecc_fault(fakes),
                "hca": hca_fault(fakes),
            }
            most = min(count, GPUS, HCAS) if kind in ("ecc", "hca") else count
            return list(samples(faults[kind], arrivals, most, _PAUSE_S[kind]))


def main() -> None:
    """Measure one kind and print its samples in seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=tuple(_PAUSE_S))
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        print(json.dumps(measure(given.kind, given.count, Path(name))))


if __name__ == "__main__":
    main()
