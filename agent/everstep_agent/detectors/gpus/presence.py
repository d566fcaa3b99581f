"""GPU presence detector: GPUs that are lost or give no answer, and a driver that hangs."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from everstep_agent.detectors.gpus.judging import GpuFault, judge
from everstep_agent.detectors.gpus.memory import judge_remapping
from everstep_agent.detectors.gpus.reading import (
    RESET_REQUIRED,
    VERSION_MISMATCH,
)
from everstep_agent.detectors.gpus.reading import GpuReading as GpuReading
from everstep_agent.detectors.gpus.reading import GpusReading as GpusReading
from everstep_agent.detectors.gpus.reading import RecoveryAction as RecoveryAction
from everstep_agent.detectors.gpus.recovery import judge_recovery
from everstep_agent.detectors.gpus.recovery import recovery_finding as recovery_finding
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement

DRIVER = "driver/nvidia"


CONDITIONS = (
    Condition(
        name="GpuLost",
        component="gpu/PCI",
        meaning="NVML says that the GPU is lost",
        source="three: the driver says so for a moment while somebody resets the GPU",
        clears_when="the GPU answers again in ten consecutive polls",
        raise_after=3,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuResetRequired",
        component="gpu/PCI",
        meaning="NVML answers every question about the GPU with RESET_REQUIRED",
        source="reported by the driver; three, as for a lost GPU",
        clears_when="the GPU answers again in ten consecutive polls",
        raise_after=3,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuCountMismatch",
        component=DRIVER,
        meaning="another number of GPUs answers than gpus_expected says",
        source="the operator's configuration",
        clears_when="the configured number of GPUs answers in ten polls",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuDriverUnavailable",
        component=DRIVER,
        meaning="NVIDIA GPUs are on the PCI bus, and the driver lists none, or none answers",
        source="the PCI bus",
        clears_when="the driver lists GPUs that answer in three polls",
        raise_after=10,
        clear_after=3,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuLibraryMismatch",
        component=DRIVER,
        meaning="the driver's library is of another version than its kernel module: it was "
        "upgraded under a running system, and no new process can use a GPU",
        source="NVML's answer LIB_RM_VERSION_MISMATCH",
        clears_when="the library and the kernel module understand each other",
        raise_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="DriverSilent",
        component=DRIVER,
        meaning="the driver missed its deadline: it may hang; DriverHang says that it does",
        source="gpu_deadline_s, once",
        clears_when="the driver answers within the deadline in three polls",
        clear_after=3,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="DriverHang",
        component=DRIVER,
        meaning="the driver missed its deadline, its process replaced in between; or a process "
        "is stuck in it and cannot be killed",
        source="gpu_deadline_s, three times",
        clears_when="the driver answers within the deadline in ten polls",
        raise_after=3,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
)

_UNAVAILABLE = GpuFault(
    "GpuDriverUnavailable",
    "GPUs are on the PCI bus, but cannot be used",
    "devices on the bus without a driver",
    Severity.FATAL,
    SuggestedAction.REBOOT_NODE,
)
_MISMATCH = GpuFault(
    "GpuLibraryMismatch",
    "the driver's library and its kernel module are of different versions",
    "NVML error",
    Severity.DEGRADED,
    SuggestedAction.REBOOT_NODE,
)
_COUNT = GpuFault(
    "GpuCountMismatch",
    "not as many GPUs answer as are configured",
    "configured number of GPUs",
    Severity.FATAL,
    SuggestedAction.REBOOT_NODE,
)
LOST = GpuFault(
    "GpuLost",
    "the GPU does not answer its driver",
    "NVML error",
    Severity.FATAL,
    SuggestedAction.REBOOT_NODE,
)
RESET_DEMANDED = GpuFault(
    "GpuResetRequired",
    "the driver demands a reset before it answers again",
    "NVML error",
    Severity.FATAL,
    SuggestedAction.RESET_DEVICE,
)
_HANG = GpuFault(
    "DriverHang",
    "the driver does not answer",
    "deadline of the driver probe",
    Severity.FATAL,
    SuggestedAction.REBOOT_NODE,
)


_SILENT = GpuFault("DriverSilent", "the driver did not answer in time", "deadline, once")


def judge_gpus(reading: GpusReading, expected: int, on_bus: int) -> list[Judgement]:
    """Judge one answer; ``expected`` GPUs are configured (0: any), ``on_bus`` are on the bus."""
    # When no GPU of the node answers, the driver is the more likely cause than all of its GPUs.
    all_silent = len(reading.gpus) > 1 and all(gpu.error for gpu in reading.gpus)
    judgements = [_judge_presence(reading, on_bus, all_silent), _judge_library(reading)]
    if expected:
        found = sum(1 for gpu in reading.gpus if not gpu.error)
        evidence = f"{found} of {expected} GPUs answer"
        judgements.append(judge(DRIVER, _COUNT, found != expected, evidence))
    for gpu in reading.gpus:
        judgements += _judge_words(_words(gpu), all_silent)
    return judgements


class _Words(NamedTuple):
    """What the driver says of a GPU in words and flags: the same for hours."""

    component: str
    error: str
    error_code: int | None
    recovery_action: int | None
    remap_pending: bool | None
    remap_failed: bool | None


def _words(gpu: GpuReading) -> _Words:
    return _Words(
        gpu.component,
        gpu.error,
        gpu.error_code,
        gpu.recovery_action,
        gpu.remap_pending,
        gpu.remap_failed,
    )


@lru_cache(maxsize=256)
def _judge_words(gpu: _Words, all_silent: bool) -> tuple[Judgement, ...]:
    answers = tuple(_judge_answer(gpu, all_silent))
    if gpu.error:
        return answers
    flags = judge_remapping(gpu.component, gpu.remap_pending, gpu.remap_failed)
    return (*answers, judge_recovery(gpu.component, gpu.recovery_action), *flags)


def _judge_presence(reading: GpusReading, on_bus: int, all_silent: bool) -> Judgement:
    if all_silent:
        evidence = f"each of {len(reading.gpus)} GPUs: {reading.gpus[0].error}"
        return judge(DRIVER, _UNAVAILABLE, True, evidence)
    if reading.gpus or not on_bus:
        evidence = f"the driver lists {len(reading.gpus)} GPUs, the bus {on_bus}"
        return judge(DRIVER, _UNAVAILABLE, False, evidence)
    why = reading.absent or "the driver lists no GPU"
    return judge(DRIVER, _UNAVAILABLE, True, f"{on_bus} on the bus; {why}")


def _judge_library(reading: GpusReading) -> Judgement:
    if reading.absent_code == VERSION_MISMATCH:
        return judge(DRIVER, _MISMATCH, True, reading.absent)
    evidence = f"driver {reading.driver or 'none'}, library {reading.library or 'none'}"
    return judge(DRIVER, _MISMATCH, None if reading.absent_code else False, evidence)


def _judge_answer(gpu: _Words, all_silent: bool) -> Iterable[Judgement]:
    if all_silent:
        yield judge(gpu.component, LOST, None, "no GPU of this node answers")
        yield judge(gpu.component, RESET_DEMANDED, None, "no GPU of this node answers")
        return
    needs_reset = gpu.error_code == RESET_REQUIRED
    evidence = gpu.error or f"{gpu.component} answers"
    # An error is either "reset required" or "lost": it leaves the other condition unknown.
    yield judge(gpu.component, LOST, None if needs_reset else bool(gpu.error), evidence)
    holds = None if gpu.error and not needs_reset else needs_reset
    yield judge(gpu.component, RESET_DEMANDED, holds, evidence)


def judge_driver_hang(missed: str) -> tuple[Judgement, ...]:
    """Judge whether the driver answered; ``missed`` says how it did not, empty when it did.

    A hang is certain only after a minute; until then the node is not called healthy.
    """
    evidence = missed or "the driver answered within the deadline"
    return tuple(judge(DRIVER, fault, bool(missed), evidence) for fault in (_HANG, _SILENT))
