"""How injections are written, and what is said of a text that is none."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.kernel.gpu_faults.xid import xid_event
from everstep_agent.injections.grammar import SpecError, parse
from everstep_agent.injections.kernel_lines import kernel_text
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
    XidSpec,
)

_PCI = "0000:3b:00.0"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("xid:79", XidSpec(79)),
        (f"xid:79@{_PCI}", XidSpec(79, _PCI)),
        ("xid:79@0000:3B:00.0", XidSpec(79, _PCI)),
        ('kernel:"mce: hardware error: CPU 0"', KernelSpec("mce: hardware error: CPU 0")),
        ("ecc:corrected=1000/s", EccSpec("corrected", 1000, True)),
        (f"ecc:uncorrected=1@{_PCI}", EccSpec("uncorrected", 1, False, _PCI)),
        (f"temperature:95@{_PCI}", TemperatureSpec(95, _PCI)),
        ("throttle:power_brake", ThrottleSpec("power_brake")),
        ("lost", LostSpec()),
        (f"lost@{_PCI}", LostSpec(_PCI)),
        ("link-down:mlx5_0/1", LinkDownSpec("mlx5_0/1")),
        ("link-errors:mlx5_0/1=symbol_error:200", LinkErrorsSpec("mlx5_0/1", "symbol_error", 200)),
        ("hang:nvml", HangSpec()),
        ("slow:20%", SlowSpec(0.2)),
        ("slow:20", SlowSpec(0.2)),
    ],
)
def test_what_is_written_is_what_is_meant(text: str, spec: Spec) -> None:
    assert parse(text) == spec
    assert spec.phrase


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no injection ''; known: xid:79"),
        ("xidd:79", "there is no injection 'xidd'; did you mean xid? known: xid:79[@PCI], "),
        ("xid:many", "'xid:many' cannot be read; write it like xid:79[@PCI]"),
        ("xid:79@3b", "'3b' is no PCI address; write it like 0000:3b:00.0"),
        ("ecc:correctable=3", "write it like ecc:corrected=1000/s[@PCI] or ecc:uncorrected=1"),
        ("slow:100%", "write it like slow:20%"),
        ("slow:²%", "write it like slow:20%"),
        ("hang:disk", "write it like hang:nvml"),
        ("throttle:brake", "write it like throttle:hw_slowdown|thermal|power_brake[@PCI]"),
        ("kernel:", "write it like kernel:TEXT"),
        ("kernel:two\nlines", "write it like kernel:TEXT, one line of at most 400 characters"),
        ("ecc:corrected=0", "ecc:uncorrected=1[@PCI], at least 1"),
        ("link-errors:mlx5_0/1=symbol_error:0", "symbol_error:200, at least 1 each second"),
        ("temperature:151", "temperature:95[@PCI], 1 to 150 degrees Celsius"),
        ("link-errors:mlx5_0/1", "write it like link-errors:mlx5_0/1=symbol_error:200"),
    ],
)
def test_what_cannot_be_read_says_how_it_is_written(text: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert told in str(caught.value)


def test_an_xid_is_written_as_the_driver_writes_it() -> None:
    event = xid_event(kernel_text(XidSpec(79, _PCI)))
    assert event is not None
    assert (event.code, event.pci) == (79, _PCI)
    assert kernel_text(KernelSpec("any words")) == "any words"


@given(st.text() | st.from_regex(r"[a-z-]+:[^\n]*(@[^\n]*)?", fullmatch=True))
def test_no_text_is_more_than_refused(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert parse(text).phrase
