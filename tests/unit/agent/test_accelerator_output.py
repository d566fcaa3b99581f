"""Output of the vendors' tools: what their published samples say, and what nonsense does."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.probes.accelerators import amd_smi, intel_text, kunlunxin_text
from everstep_agent.probes.accelerators.ascend_text import (
    Ecc,
    parse_ecc,
    parse_health,
    parse_info,
)
from everstep_agent.probes.accelerators.hygon import parse_summary as parse_hygon
from everstep_agent.probes.accelerators.text import UnreadableOutputError, number, pci_address

# Where each sample comes from is in the README beside them.
_SAMPLES = Path(__file__).resolve().parents[2] / "fixtures/accelerators"
_GIB = 1 << 30
_PARSERS: dict[str, Callable[[str], object]] = {
    "npu-smi info": parse_info,
    "npu-smi ecc": parse_ecc,
    "npu-smi health": parse_health,
    "xpu-smi, Kunlunxin": kunlunxin_text.parse_summary,
    "hy-smi": parse_hygon,
    "xpu-smi discovery": intel_text.parse_discovery,
    "xpu-smi discovery --dump": intel_text.parse_properties,
    "xpu-smi health": intel_text.parse_health,
    "xpu-smi dump": intel_text.parse_statistics,
    "amdsmi": amd_smi.parse_answer,
}


def _sample(name: str) -> str:
    return (_SAMPLES / name).read_text(encoding="utf-8")


def test_eight_npus_of_an_atlas_800t() -> None:
    reading, chips = parse_info(_sample("ascend_info_910b2.txt"))
    assert (reading.version, len(reading.devices)) == ("25.2.0", 8)
    assert [(chip.npu, chip.chip) for chip in chips] == [(npu, 0) for npu in range(8)]
    first = reading.devices[0]
    assert (first.component, first.name) == ("accelerator/ascend-0000:c1:00.0", "Ascend 910B2")
    assert (first.health, first.power_w, first.temperature_c) == ("OK", 94.2, 49.0)
    assert (first.memory_bytes, first.memory_used_ratio) == (64 * _GIB, 3418 / 65536)
    assert (first.busy_ratio, first.processes) == (0.0, 0)


def test_an_npu_of_two_chips_is_two_devices_and_the_second_has_no_power() -> None:
    reading, chips = parse_info(_sample("ascend_info_a3.txt"))
    assert len({device.id for device in reading.devices}) == 16
    assert [(chip.npu, chip.chip) for chip in chips[:3]] == [(0, 0), (0, 1), (1, 0)]
    assert [device.power_w for device in reading.devices[:2]] == [165.3, None]


def test_a_module_without_a_bus_is_named_by_its_numbers() -> None:
    (device,) = parse_info(_sample("ascend_info_310b.txt"))[0].devices
    assert (device.id, device.pci, device.processes) == ("0.0", "", None)
    assert device.memory_used_ratio == 1003 / 10810


def test_a_chip_that_has_not_started_does_not_answer() -> None:
    # The word is documented, a sample with it is not: one word of the sample is changed.
    text = _sample("ascend_info_910b2.txt").replace("| OK     ", "| UNKNOWN", 1)
    assert [bool(device.error) for device in parse_info(text)[0].devices] == [True] + 7 * [False]


def test_columns_may_be_added_and_change_their_width() -> None:
    text = _sample("ascend_info_910b2.txt").replace("HBM-Usage(MB)        |", "HBM-Usage(MB) Fan|")
    wide = text.replace("0000:C1:00.0  |", "0000:C1:00.0  extra  |").replace(" | ", "   |   ")
    assert parse_info(wide)[0].devices[0].memory_bytes == 64 * _GIB


def test_colours_do_not_matter() -> None:
    text = _sample("ascend_info_910b2.txt").replace("| OK ", "| \x1b[32mOK\x1b[0m ")
    assert parse_info(text) == parse_info(_sample("ascend_info_910b2.txt"))


def test_memory_errors_of_hbm_and_ddr_are_one_sum() -> None:
    assert parse_ecc(_sample("ascend_ecc_910.txt")) == Ecc(0, 0)
    assert parse_ecc(_sample("ascend_ecc_310b.txt")) == Ecc(0, 0)
    # Values are changed: every published sample is of a healthy device.
    text = _sample("ascend_ecc_910.txt")
    text = text.replace(
        "HBM Double Bit Error Count               : 0", "HBM Double Bit Error Count: 2"
    )
    text = text.replace(
        "DDR Single Bit Error Count               : 0", "DDR Single Bit Error Count: 3"
    )
    assert parse_ecc(text) == Ecc(3, 2)


def test_the_error_code_of_a_healthy_chip_is_none() -> None:
    assert parse_health(_sample("ascend_health.txt")) == ""


def test_eight_cards_of_a_kunlunxin_p800() -> None:
    reading = kunlunxin_text.parse_summary(_sample("kunlunxin_p800.txt"))
    assert (reading.version, len(reading.devices)) == ("515.58", 8)
    first = reading.devices[0]
    assert (first.name, first.pci) == ("Kunlunxin P800 OAM", "0000:52:00.0")
    assert (first.temperature_c, first.power_w, first.busy_ratio) == (43.0, 98.0, 0.0)
    assert (first.memory_bytes, first.ecc_uncorrected, first.health) == (96 * _GIB, 0, "")
    # Nobody knows what a line of a running process looks like: not counted rather than guessed.
    assert first.processes is None


@pytest.mark.parametrize("name", ["hygon_k100_ai.txt", "hygon_z100.txt"])
def test_four_hygon_cards(name: str) -> None:
    devices = parse_hygon(_sample(name)).devices
    assert [device.id for device in devices] == ["0", "1", "2", "3"]
    assert devices[0].name == "Hygon DCU"
    assert (devices[0].memory_used_ratio, devices[0].busy_ratio) == (0.0, 0.0)
    assert devices[0].temperature_c in (49.0, 30.0)
    assert devices[3].power_w in (138.0, 39.0)


def test_who_answers_as_xpu_smi() -> None:
    kunlunxin = _sample("kunlunxin_p800.txt")
    assert kunlunxin_text.is_kunlunxin(kunlunxin)
    assert intel_text.major_version(kunlunxin) is None
    for name, major in (("intel_help.txt", 1), ("intel_summary_v2.txt", 2)):
        assert intel_text.major_version(_sample(name)) == major
        assert not kunlunxin_text.is_kunlunxin(_sample(name))
    assert intel_text.major_version(_sample("intel_version.txt")) is None


def test_an_intel_card_is_discovered() -> None:
    (device,) = intel_text.parse_discovery(_sample("intel_discovery.json")).values()
    assert (device.pci, device.name) == ("0000:4d:00.0", "Intel(R) Graphics [0x020a]")
    assert device.serial == "00000000-0000-0000-0000-020a00008086"
    properties = intel_text.parse_properties(_sample("intel_discovery_dump.csv"))
    assert properties[1]["Device Name"] == "Intel(R) Graphics [0x56c0]"


def test_the_health_of_an_intel_card_and_its_own_threshold() -> None:
    (health,) = intel_text.parse_health(_sample("intel_health.txt")).values()
    assert (health.word, health.detail, health.core_limit_c) == ("ok", "", 105.0)


def test_the_worst_part_is_the_health_of_an_intel_card() -> None:
    # The words are those of xpum_health_status; the sample has Ok only.
    head, _, tail = _sample("intel_health.txt").partition("| 4. GPU Memory ")
    (health,) = intel_text.parse_health(
        f"{head}| 4. GPU Memory {tail.replace('Status: Ok', 'Status: Critical', 1)}"
    ).values()
    assert health.word == "critical"
    assert health.detail.startswith("4. GPU Memory: Status: Critical")
    (unknown,) = intel_text.parse_health(
        _sample("intel_health.txt").replace("Status: Ok", "Status: Unknown", 1)
    ).values()
    assert unknown.word == "ok"


def test_the_newest_line_of_each_intel_card_counts() -> None:
    flex = intel_text.parse_statistics(_sample("intel_dump_flex.csv"))
    assert (flex[0].busy_ratio, flex[0].power_w) == (0.0, 14.61)
    arc = intel_text.parse_statistics(_sample("intel_dump_arc.csv"))
    assert (arc[0].memory_used_mib, arc[0].power_w) == (82.44, 15.36)
    largest = intel_text.parse_statistics(_sample("intel_dump_max.csv"))
    assert [largest[card].core_c for card in range(5)] == [36.0, 38.0, 35.5, 38.0, 41.5]
    assert largest[0].memory_used_mib is None


def test_numbers_and_addresses_as_tools_write_them() -> None:
    assert [number(text) for text in ("43C", "98W / 400W", "-", "N/A", "", "1.2.3")] == [
        43.0, 98.0, None, None, None, None,
    ]  # fmt: skip
    assert pci_address("00000000:9A:00.0") == "0000:9a:00.0"
    assert [pci_address(text) for text in ("NA", "", "0000:9A:00")] == ["", "", ""]


@pytest.mark.parametrize("tool", _PARSERS)
@pytest.mark.parametrize("text", ["", "Segmentation fault\n", "{}", "[]", "\x00" * 100, "|||\n|"])
def test_what_is_no_output_is_told_with_its_first_line(tool: str, text: str) -> None:
    if tool == "npu-smi health":
        # Its fields are evidence beside a health word that is known already.
        assert parse_health(text) == ""
        return
    with pytest.raises(UnreadableOutputError) as error:
        _PARSERS[tool](text)
    assert ("Segmentation" in text) == ("'Segmentation fault'" in str(error.value))


_TEXTS = sorted(path.read_text(encoding="utf-8") for path in _SAMPLES.glob("*.*"))


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """Return a sample with a piece cut out and another put in."""
    text = draw(st.sampled_from(_TEXTS))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 400)))
    pieces = st.one_of(
        st.text(max_size=30), st.sampled_from(["|", "\n", "9" * 400, "٣", "/", "-1"])
    )
    return text[:start] + draw(pieces) + text[end:]


@given(st.one_of(st.text(), _damaged()))
def test_no_output_breaks_a_parser(text: str) -> None:
    for parse in _PARSERS.values():
        with contextlib.suppress(UnreadableOutputError):
            parse(text)
