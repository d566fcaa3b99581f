"""Inventory detector: parts that the node's operator expects and that the node does not have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from everstep_agent.detectors.inventory.expected import ExpectedGpus, ExpectedInventory
from everstep_agent.detectors.inventory.links import SeenLink, judge_links
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Healthy, Judgement, Unknown

# A file system is a little smaller than its disk, and not always by the same.
_DISK_SIZE_RATIO = 0.95
_LOOKS = 3


def _condition(name: str, component: str, meaning: str, mode: Mode) -> Condition:
    return Condition(
        name=name,
        component=component,
        meaning=f"{meaning}, in {_LOOKS} polls",
        source="the expected inventory (key `inventory` of the agent)",
        clears_when=f"the node has what is expected in {_LOOKS} polls, or it is not expected now",
        raise_after=_LOOKS,
        clear_after=_LOOKS,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=mode,
    )


CONDITIONS = (
    _condition("GpuMissing", "gpu/PCI", "no GPU answers at an expected address", Mode.ENFORCE),
    _condition(
        "GpuNotAsExpected",
        "gpu/PCI",
        "another product, less memory, fewer active NVLinks, a lower PCIe generation or width than "
        "expected",
        Mode.ADVISE,
    ),
    _condition("DriverMismatch", "driver/nvidia", "another driver version", Mode.OBSERVE),
    _condition("LinkMissing", "link/NAME", "no such link, or fewer than expected", Mode.ENFORCE),
    _condition(
        "LinkBelowExpectedRate", "link/NAME", "a link is up below its expected rate", Mode.ADVISE
    ),
    _condition("DeviceUnexpected", "links/KIND", "more links of a kind than named", Mode.OBSERVE),
    _condition("CpuMissing", "cpu", "fewer logical CPUs than expected", Mode.ADVISE),
    _condition("NumaNodeMissing", "cpu", "fewer NUMA nodes than expected", Mode.ADVISE),
    _condition("MemoryMissing", "memory", "less memory than memory_tolerance allows", Mode.ADVISE),
    _condition(
        "DiskMissing",
        "disk/MOUNT",
        f"not mounted, or smaller than {_DISK_SIZE_RATIO:.0%} of what is expected",
        Mode.ADVISE,
    ),
    _condition(
        "AcceleratorMissing",
        "accelerators/VENDOR",
        "fewer accelerators than expected",
        # Only advice: the adapters that read these devices were not run on the hardware yet.
        Mode.ADVISE,
    ),
)
NAMES = frozenset(condition.name for condition in CONDITIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """A GPU that the driver lists; None where it does not say. ``error``: it does not answer."""

    pci: str
    name: str
    memory_bytes: int
    nvlinks: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInventory:
    """Inventory that the node has; None where it was not read (yet)."""

    gpus: tuple[SeenGpu, ...] | None = None
    driver: str = ""
    links: tuple[SeenLink, ...] | None = None
    cpus: int | None = None
    numa_nodes: int | None = None
    memory_bytes: int | None = None
    # Size by mount, and count by vendor.
    disks: tuple[tuple[str, int], ...] | None = None
    accelerators: tuple[tuple[str, int], ...] | None = None


def judge_inventory(
    expected: ExpectedInventory, seen: SeenInventory, open_keys: Iterable[FindingKey]
) -> list[Judgement]:
    """Compare; a finding that is open about something not expected any more is over."""
    judgements = [
        *_judge_gpus(expected.gpus, seen),
        *judge_links(expected.links, seen.links),
        *_judge_host(expected, seen),
        *_judge_disks(expected, seen),
        *_judge_accelerators(expected, seen),
    ]
    judgements_of = {judgement.key for judgement in judgements}
    over = (key for key in open_keys if key.condition in NAMES and key not in judgements_of)
    return [*judgements, *(Healthy(key, "it is not expected any more") for key in over)]


def _judge_gpus(expected: ExpectedGpus, seen: SeenInventory) -> Iterator[Judgement]:
    if seen.gpus is None:
        yield from _unknown_gpus(expected)
        return
    if expected.driver:
        wrong = seen.driver and seen.driver != expected.driver
        message = f"the NVIDIA driver is {seen.driver}, expected {expected.driver}"
        fault = Fault(message=message, rule="driver version of the inventory") if wrong else None
        yield judged("driver/nvidia", "DriverMismatch", f"driver {seen.driver or '?'}", fault)
    answering = {gpu.pci for gpu in seen.gpus if not gpu.error}
    # When no GPU at all answers, the driver is at fault, which other detectors report.
    for pci in expected.pci if answering else ():
        message = f"no GPU answers at {pci}"
        yield judged(
            f"gpu/{pci}",
            "GpuMissing",
            f"{len(answering)} of {len(expected.pci)} expected addresses and others answer",
            None if pci in answering else _lost(message, "PCI address of the inventory"),
        )
    for gpu in seen.gpus:
        if not gpu.error:
            yield _judge_gpu(expected, gpu)


def _unknown_gpus(expected: ExpectedGpus) -> Iterator[Judgement]:
    for pci in expected.pci:
        yield Unknown(FindingKey(f"gpu/{pci}", "GpuMissing"), "the driver was not read")
    if expected.driver:
        yield Unknown(FindingKey("driver/nvidia", "DriverMismatch"), "the driver was not read")


def _judge_gpu(expected: ExpectedGpus, gpu: SeenGpu) -> Judgement:
    wrong = []
    if expected.name and gpu.name != expected.name:
        wrong.append(f"is {gpu.name}, expected {expected.name}")
    for what, least, found in (
        ("bytes of memory", expected.memory_bytes, gpu.memory_bytes),
        ("active NVLinks", expected.nvlinks, gpu.nvlinks),
        ("as PCIe generation", expected.pcie_generation, gpu.pcie_generation),
        ("PCIe lanes", expected.pcie_width, gpu.pcie_width),
    ):
        if found is not None and found < least:
            wrong.append(f"has {found} {what}, expected {least}")
    fault = Fault(
        message=f"GPU {gpu.pci} {' and '.join(wrong)}",
        rule="GPU of the inventory",
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    return judged(f"gpu/{gpu.pci}", "GpuNotAsExpected", gpu.name, fault if wrong else None)


def _judge_host(expected: ExpectedInventory, seen: SeenInventory) -> Iterator[Judgement]:
    host = expected.host
    memory = int(host.memory_bytes * (1 - host.memory_tolerance))
    for component, condition, what, least, found in (
        ("cpu", "CpuMissing", "CPUs", host.cpus, seen.cpus),
        ("cpu", "NumaNodeMissing", "NUMA nodes", host.numa_nodes, seen.numa_nodes),
        ("memory", "MemoryMissing", "bytes of memory", memory, seen.memory_bytes),
    ):
        if least and found is None:
            yield Unknown(FindingKey(component, condition), "not read")
        elif least and found is not None:
            message = f"the node has {found} {what}, expected at least {least}"
            fault = _weak(message, "host of the inventory") if found < least else None
            yield judged(component, condition, f"{found} {what}", fault)


def _judge_disks(expected: ExpectedInventory, seen: SeenInventory) -> Iterator[Judgement]:
    sizes = None if seen.disks is None else dict(seen.disks)
    for disk in expected.disks:
        component = f"disk/{disk.mount}"
        if sizes is None:
            yield Unknown(FindingKey(component, "DiskMissing"), "the disks were not read")
            continue
        size = sizes.get(disk.mount)
        fault = None
        if size is None:
            fault = _weak(f"nothing is mounted at {disk.mount}", "mount of the inventory")
        elif size < disk.size_bytes * _DISK_SIZE_RATIO:
            message = f"{disk.mount} has {size} bytes, expected {disk.size_bytes}"
            fault = _weak(message, "size of the inventory")
        yield judged(component, "DiskMissing", f"{size or 0} bytes", fault)


def _judge_accelerators(expected: ExpectedInventory, seen: SeenInventory) -> Iterator[Judgement]:
    counts = None if seen.accelerators is None else dict(seen.accelerators)
    for wanted in expected.accelerators:
        component = f"accelerators/{wanted.vendor}"
        if counts is None:
            key = FindingKey(component, "AcceleratorMissing")
            yield Unknown(key, "the accelerators were not read")
            continue
        found = counts.get(wanted.vendor, 0)
        message = f"{found} accelerators of {wanted.vendor} answer, expected {wanted.count}"
        fault = _lost(message, "count of the inventory") if found < wanted.count else None
        yield judged(component, "AcceleratorMissing", f"{found} answer", fault)


def _weak(message: str, rule: str) -> Fault:
    return Fault(message=message, rule=rule, action=SuggestedAction.REPAIR_HARDWARE)


def _lost(message: str, rule: str) -> Fault:
    return Fault(
        message=message,
        rule=rule,
        severity=Severity.FATAL,
        action=SuggestedAction.REPAIR_HARDWARE,
    )
