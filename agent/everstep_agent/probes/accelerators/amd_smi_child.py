"""AMD SMI process: asks AMD's SMI library once and prints its answer as JSON.

Written for the Python package amdsmi 7.0 (ROCm 7.0), after its signatures and AMD's reference; it
was not run on the hardware. Run as a script: everything here is imported by that process alone.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from types import ModuleType

_MIB = 1 << 20


def main() -> None:
    """Print one line: {"absent": reason} or {"devices": [...]}."""
    # The package complains on standard output when it is imported without its library.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        print(json.dumps(_ask()), file=answer)


def _ask() -> dict[str, object]:
    try:
        import amdsmi  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except (ImportError, OSError, KeyError) as error:
        # The package raises whatever comes up first when libamd_smi.so is missing or too old.
        return {"absent": f"amdsmi: {type(error).__name__}: {error}"}
    try:
        amdsmi.amdsmi_init()
    except amdsmi.AmdSmiException as error:
        return {"absent": f"amdsmi: {_said(error)}"}
    devices = [_device(amdsmi, handle) for handle in amdsmi.amdsmi_get_processor_handles()]
    with contextlib.suppress(amdsmi.AmdSmiException):
        amdsmi.amdsmi_shut_down()
    return {"devices": devices}


def _device(smi: ModuleType, handle: object) -> dict[str, object]:
    def ask(function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(handle, *arguments)
        except smi.AmdSmiException:
            return None

    def ask_all(function: Callable[..., object]) -> Mapping[str, object]:
        answer = ask(function)
        return answer if isinstance(answer, dict) else {}

    kind, metric = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric
    memory, power = ask_all(smi.amdsmi_get_gpu_vram_usage), ask_all(smi.amdsmi_get_power_info)
    ecc = ask_all(smi.amdsmi_get_gpu_total_ecc_count)
    total, used = _number(memory.get("vram_total")), _number(memory.get("vram_used"))
    busy = _number(ask_all(smi.amdsmi_get_gpu_activity).get("gfx_activity"))
    answer: dict[str, object] = {
        "pci": ask(smi.amdsmi_get_gpu_device_bdf),
        "serial": ask(smi.amdsmi_get_gpu_device_uuid),
        "name": ask_all(smi.amdsmi_get_gpu_asic_info).get("market_name"),
        "driver": ask_all(smi.amdsmi_get_gpu_driver_info).get("driver_version"),
        "memory_bytes": int(total) * _MIB if total is not None else None,
        "memory_used_ratio": used / total if total and used is not None else None,
        "temperature_c": _number(ask(smi.amdsmi_get_temp_metric, kind, metric.CURRENT)),
        "temperature_limit_c": _number(ask(smi.amdsmi_get_temp_metric, kind, metric.CRITICAL)),
        # Which of the two a device has depends on its generation.
        "power_w": _number(power.get("current_socket_power"))
        or _number(power.get("average_socket_power")),
        "busy_ratio": busy / 100 if busy is not None else None,
        "ecc_corrected": _number(ecc.get("correctable_count")),
        "ecc_uncorrected": _number(ecc.get("uncorrectable_count")),
    }
    return answer


def _number(value: object) -> float | int | None:
    """Return a number; None for "N/A"."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


if __name__ == "__main__":
    main()
