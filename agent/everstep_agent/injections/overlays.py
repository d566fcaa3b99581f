"""Injection overlays: change a reading of a GPU, link or counter as an injected fault would."""

from dataclasses import replace

from everstep_agent.detectors.gpus.reading import ClockReason, GpuReading
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.injections.specs import (
    EccSpec,
    GpuSpec,
    LinkDownSpec,
    LinkErrorsSpec,
    LostSpec,
    TemperatureSpec,
    ThrottleSpec,
)

# NVML_ERROR_GPU_IS_LOST of nvml.h.
_GPU_IS_LOST = 15
_REASONS = {
    "hw_slowdown": ClockReason.HARDWARE_SLOWDOWN,
    "thermal": ClockReason.HARDWARE_SLOWDOWN | ClockReason.HARDWARE_THERMAL,
    "power_brake": ClockReason.HARDWARE_SLOWDOWN | ClockReason.POWER_BRAKE,
}


def faulty_gpu(spec: GpuSpec, gpu: GpuReading, elapsed_s: float) -> GpuReading:
    """Return what the driver would say of a GPU with this fault, so long after it began."""
    match spec:
        case EccSpec():
            return _with_errors(spec, gpu, elapsed_s)
        case TemperatureSpec():
            return _heated(gpu, spec.celsius)
        case ThrottleSpec():
            return replace(gpu, clock_reasons=(gpu.clock_reasons or 0) | _REASONS[spec.reason])
        case LostSpec():
            return replace(gpu, error="GPU is lost (injected)", error_code=_GPU_IS_LOST)


def _heated(gpu: GpuReading, celsius: int) -> GpuReading:
    # Newer GPUs report the distance to their temperature limit instead of the limit.
    margin, before = gpu.thermal_margin_c, gpu.temperature_c
    if margin is not None and before is not None:
        margin -= round(celsius - before)
    return replace(gpu, temperature_c=float(celsius), thermal_margin_c=margin)


def _with_errors(spec: EccSpec, gpu: GpuReading, elapsed_s: float) -> GpuReading:
    more = int(spec.count * elapsed_s) if spec.each_second else spec.count
    if spec.kind == "corrected":
        total = gpu.ecc_corrected_aggregate
        return replace(
            gpu,
            ecc_corrected=(gpu.ecc_corrected or 0) + more,
            ecc_corrected_aggregate=None if total is None else total + more,
        )
    total = gpu.ecc_uncorrected_aggregate
    return replace(
        gpu,
        ecc_uncorrected=(gpu.ecc_uncorrected or 0) + more,
        ecc_uncorrected_aggregate=None if total is None else total + more,
    )


def faulty_link(spec: LinkDownSpec, link: LinkReading) -> LinkReading:
    """Return what sysfs would say of the link."""
    del spec  # there is one way to be down
    return replace(link, up=False, speed_bits_per_s=0, detail="down (injected)")


def faulty_counters(
    spec: LinkErrorsSpec, reading: CountersReading, elapsed_s: float
) -> CountersReading:
    """Return what the link would have counted by now."""
    counted = reading.values.get(spec.counter, 0) + int(spec.each_second * elapsed_s)
    return replace(reading, values={**reading.values, spec.counter: counted})
