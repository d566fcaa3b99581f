"""HCA probe: the PCIe link and the temperatures of a card, from sysfs."""

import os
import re
from collections.abc import Iterator, Sequence

from everstep_agent.detectors.links.hca import HcaReading, Sensor
from everstep_agent.probes.links.pci import is_virtual_function
from everstep_agent.probes.links.sysfs_file import names_in, text_of

_RATE = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_NUMBER = re.compile(r"-?\d{1,9}\Z")
# Virtual slots say 0 or 255 lanes; none has more than 32.
_LANES_MAX = 32


def read_hcas(sysfs: str) -> tuple[HcaReading, ...]:
    """Return every HCA that is a physical function."""
    folder = f"{sysfs}/class/infiniband"
    devices = {name: f"{folder}/{name}/device" for name in names_in(folder)}
    return tuple(
        _read(name, os.path.realpath(device))
        for name, device in devices.items()
        if not is_virtual_function(device)
    )


def _read(name: str, card: str) -> HcaReading:
    slot = os.path.dirname(card)
    return HcaReading(
        device=name,
        lanes=_lanes(f"{card}/current_link_width"),
        lanes_max=int(_least([_lanes(f"{place}/max_link_width") for place in (card, slot)])),
        rate=_rate(f"{card}/current_link_speed"),
        rate_max=_least([_rate(f"{place}/max_link_speed") for place in (card, slot)]),
        sensors=tuple(_sensors(f"{card}/hwmon")),
    )


def _least(values: Sequence[float]) -> float:
    """Return the least of what is known; 0 when nothing is."""
    return min((value for value in values if value), default=0)


def _lanes(path: str) -> int:
    text = text_of(path) or ""
    lanes = int(text) if _NUMBER.match(text) else 0
    return lanes if 0 < lanes <= _LANES_MAX else 0


def _rate(path: str) -> float:
    match = _RATE.match(text_of(path) or "")
    return float(match[1]) if match else 0.0


def _sensors(hwmon: str) -> Iterator[Sensor]:
    for chip in names_in(hwmon):
        for file in names_in(f"{hwmon}/{chip}"):
            if file.startswith("temp") and file.endswith("_input"):
                sensor = f"{hwmon}/{chip}/{file.removesuffix('_input')}"
                celsius = _celsius(f"{sensor}_input")
                if celsius is not None:
                    label = (text_of(f"{sensor}_label") or file)[:40]
                    critical = _celsius(f"{sensor}_crit")
                    yield Sensor(label=label, celsius=celsius, critical_c=critical)


def _celsius(path: str) -> float | None:
    text = text_of(path)
    return int(text) / 1000 if text is not None and _NUMBER.match(text) else None
