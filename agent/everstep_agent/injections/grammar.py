"""Injection grammar: how an injection is written, and what is wrong with a text that is none."""

import difflib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from everstep_agent.injections.specs import (
    EccSpec,
    HangSpec,
    KernelSpec,
    LinkDownSpec,
    LinkErrorsSpec,
    LostSpec,
    SlowSpec,
    Spec,
    TemperatureSpec,
    ThrottleSpec,
    WorkSpec,
    XidSpec,
)


class SpecError(ValueError):
    """Text that cannot be injected; one sentence says what could."""


THROTTLE_REASONS = ("hw_slowdown", "thermal", "power_brake")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LINE_MAX = 400


def parse(text: str) -> Spec:
    """Return what a specification means. Raises SpecError."""
    kind = re.split("[:@]", text.strip(), maxsplit=1)[0]
    rest = text.strip().removeprefix(kind).removeprefix(":")
    reader = _READERS.get(kind)
    if reader is None:
        near = difflib.get_close_matches(kind, _FORMS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise SpecError(
            f"there is no injection {kind!r}; {hint}known: {', '.join(_FORMS.values())}"
        )
    spec = reader(rest)
    if spec is None:
        limits = _LIMITS.get(kind, "")
        raise SpecError(f"{text!r} cannot be read; write it like {_FORMS[kind]}{limits}")
    return spec


def _xid(rest: str) -> XidSpec | None:
    what, pci = _place(rest)
    return XidSpec(int(what), pci) if _number(what, 1, 999) else None


def _kernel(rest: str) -> KernelSpec | None:
    text = rest.strip().strip('"')
    return KernelSpec(text) if 0 < len(text) <= _LINE_MAX and text.isprintable() else None


def _ecc(rest: str) -> EccSpec | None:
    what, pci = _place(rest)
    match = re.fullmatch(r"(corrected|uncorrected)=([1-9]\d{0,8})(/s)?", what)
    return EccSpec(match[1], int(match[2]), bool(match[3]), pci) if match else None


def _temperature(rest: str) -> TemperatureSpec | None:
    what, pci = _place(rest)
    return TemperatureSpec(int(what), pci) if _number(what, 1, 150) else None


def _throttle(rest: str) -> ThrottleSpec | None:
    what, pci = _place(rest)
    return ThrottleSpec(what, pci) if what in THROTTLE_REASONS else None


def _lost(rest: str) -> LostSpec | None:
    what, pci = _place(rest)
    return None if what else LostSpec(pci)


def _link_down(rest: str) -> LinkDownSpec | None:
    return LinkDownSpec(rest) if rest and rest.isprintable() else None


def _link_errors(rest: str) -> LinkErrorsSpec | None:
    match = re.fullmatch(r"([^=\s]+)=(\w+):([1-9]\d{0,8})", rest)
    return LinkErrorsSpec(match[1], match[2], int(match[3])) if match else None


def _hang(rest: str) -> HangSpec | None:
    return HangSpec() if rest == "nvml" else None


def _slow(rest: str) -> SlowSpec | None:
    percent = rest.removesuffix("%")
    return SlowSpec(int(percent) / 100) if _number(percent, 1, 95) else None


def _work(rest: str) -> WorkSpec | None:
    percent = rest.removesuffix("%")
    return WorkSpec(int(percent) / 100) if _number(percent, 1, 300) else None


def _place(rest: str) -> tuple[str, str]:
    """Return what stands before the "@" and the PCI address behind it. Raises SpecError."""
    what, at, pci = rest.partition("@")
    pci = pci.lower()
    if at and not _PCI.fullmatch(pci):
        raise SpecError(f"{pci!r} is no PCI address; write it like 0000:3b:00.0")
    return what, pci


def _number(text: str, least: int, most: int) -> bool:
    return text.isdecimal() and text.isascii() and least <= int(text) <= most


_READERS: Mapping[str, Callable[[str], Spec | None]] = MappingProxyType(
    {
        "xid": _xid,
        "kernel": _kernel,
        "ecc": _ecc,
        "temperature": _temperature,
        "throttle": _throttle,
        "lost": _lost,
        "link-down": _link_down,
        "link-errors": _link_errors,
        "hang": _hang,
        "slow": _slow,
        "slow-work": _work,
    }
)
_FORMS: Mapping[str, str] = MappingProxyType(
    {
        "xid": "xid:79[@PCI]",
        "kernel": "kernel:TEXT",
        "ecc": "ecc:corrected=1000/s[@PCI] or ecc:uncorrected=1[@PCI]",
        "temperature": "temperature:95[@PCI]",
        "throttle": f"throttle:{'|'.join(THROTTLE_REASONS)}[@PCI]",
        "lost": "lost[@PCI]",
        "link-down": "link-down:mlx5_0/1",
        "link-errors": "link-errors:mlx5_0/1=symbol_error:200",
        "hang": "hang:nvml",
        "slow": "slow:20%",
        "slow-work": "slow-work:20%",
    }
)
_LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "xid": ", 1 to 999",
        "kernel": f", one line of at most {_LINE_MAX} characters",
        "ecc": ", at least 1",
        "temperature": ", 1 to 150 degrees Celsius",
        "link-errors": ", at least 1 each second",
        "slow": ", 1% to 95%",
        "slow-work": ", 1% to 300%",
    }
)
