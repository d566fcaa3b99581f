"""Backoff, terms, samples, configuration."""

import math
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.backoff import Backoff
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.gpus.presence import GpuReading, GpusReading
from everstep_agent.detectors.host.usage import HostReading
from everstep_agent.orders import TermGate
from everstep_agent.sampling import Sampler, pack
from everstep_common.config import ConfigError, document, load
from everstep_common.samples import COLUMNS
from everstep_common.stamp import Stamp


def test_delays_are_jittered_grow_to_the_cap_and_begin_again() -> None:
    backoff = Backoff(random.Random(1), first_s=0.1, cap_s=5.0)
    delays = [backoff.next_s() for _ in range(1000)]
    assert delays[0] <= 0.1
    assert max(delays) <= 5.0
    assert max(delays[10:]) > 4.0
    assert len(set(delays)) == 1000
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_who_was_there_a_moment_ago_is_asked_often_for_ten_seconds() -> None:
    backoff = Backoff(random.Random(1), first_s=0.1, cap_s=5.0)
    for _ in range(20):
        backoff.next_s()
    backoff.reset()
    asked_s, gaps = 0.0, []
    while asked_s < 60:
        gaps.append((asked_s, backoff.next_s()))
        asked_s += gaps[-1][1]
    assert max(gap for at, gap in gaps if at < 10) <= 0.5
    assert max(gap for at, gap in gaps if at > 20) > 2.0


def test_a_lower_term_is_refused_and_a_higher_one_is_kept() -> None:
    kept: list[int] = []
    gate = TermGate(5, kept.append)
    assert gate.admits(5, "order")
    assert gate.admits(7, "order")
    assert not gate.admits(6, "order")
    assert (gate.highest, gate.refused, kept) == (7, 1, [7])


def _host(received: int) -> HostReading:
    return HostReading(
        cpu_busy_ratio=0.25,
        load_1m=1.0,
        memory_total_bytes=100,
        memory_available_bytes=50,
        network_received_bytes=received,
    )


def test_counters_become_rates_and_what_is_unknown_is_nan() -> None:
    sampler = Sampler()
    first = dict(zip(COLUMNS, sampler.row(_host(1000), None, 1.0), strict=True))
    second = dict(zip(COLUMNS, sampler.row(_host(3000), None, 2.0), strict=True))
    assert math.isnan(first["network_received_bytes_per_s"])
    assert second["network_received_bytes_per_s"] == 1000.0
    assert second["cpu_busy_ratio"] == 0.25
    assert math.isnan(second["gpu_count"])


def test_a_lost_gpu_does_not_count_among_the_samples() -> None:
    gpu = GpuReading(index=0, uuid="a", name="H100", pci="p", busy_ratio=0.5, power_w=300.0)
    lost = GpuReading(index=1, uuid="b", name="H100", pci="q", error="GPU is lost")
    row = Sampler().row(None, GpusReading(gpus=(gpu, lost)), 1.0)
    values = dict(zip(COLUMNS, row, strict=True))
    assert values["gpu_count"] == 1.0
    assert values["gpu_power_w_sum"] == 300.0


def test_rows_are_packed_little_endian_in_the_common_order() -> None:
    batch = pack([tuple(float(i) for i in range(len(COLUMNS)))] * 2, Stamp("boot", 1, 2), 10**9)
    assert struct.unpack(f"<{2 * len(COLUMNS)}f", batch.rows)[: len(COLUMNS)] == tuple(
        float(i) for i in range(len(COLUMNS))
    )


def test_without_a_file_the_defaults_hold() -> None:
    config = load(AgentConfig, None)
    assert config.kernel_log == Path("/dev/kmsg")
    assert config.node_name
    assert config.reachable_host == "127.0.0.1"


def test_no_other_machine_is_told_to_reach_this_one_on_loopback() -> None:
    """It would reach itself, and take that for an answer of this node."""
    alone = replace(load(AgentConfig, None), controller="control:7433")
    assert alone.announced("127.0.0.1:7436") == ""
    assert alone.announced("10.0.0.1:7436") == "10.0.0.1:7436"
    said = " ".join(alone.unreachable())
    assert "jobs.bulk_host: 127.0.0.1" in said
    assert "liveness_address: 127.0.0.1:7437" in said


@pytest.mark.parametrize("controller", ["unix:/run/a/controller.sock", "127.0.0.1:7433"])
def test_nodes_of_one_machine_reach_one_another_on_loopback(controller: str) -> None:
    config = replace(load(AgentConfig, None), controller=controller)
    assert config.announced("127.0.0.1:7436") == "127.0.0.1:7436"
    assert config.unreachable() == []


def test_nothing_is_said_of_addresses_that_others_reach() -> None:
    shipped = load(AgentConfig, None)
    config = replace(
        shipped,
        controller="control:7433",
        liveness_address="10.0.0.1:7437",
        jobs=replace(shipped.jobs, bulk_host="10.0.0.1"),
    )
    assert config.unreachable() == []


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        'controller = "nowhere"\nmetrics_address = "0.0.0.0:9"\nprobe_deadline_s = 0.0\n'
        'log_level = "loud"\ngpus_expected = -1\n[jobs]\nslots_per_rank = 1\n'
    )
    with pytest.raises(ConfigError) as caught:
        load(AgentConfig, path)
    text = "\n".join(caught.value.problems)
    for key in (
        "controller",
        "metrics_address",
        "probe_deadline_s",
        "log_level",
        "gpus_expected",
        "jobs.slots_per_rank",
    ):
        assert key in text


@pytest.mark.parametrize("name", ["nöde-1", "n 1", "n1;reboot", "-n1", "n" * 254])
def test_a_name_that_no_controller_takes_is_a_mistake(tmp_path: Path, name: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f'node = "{name}"\n')
    with pytest.raises(ConfigError, match="node: expected a name of letters, digits") as error:
        load(AgentConfig, path)
    assert len(error.value.problems) == 1


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('kernel_logg = "/dev/kmsg"\n')
    with pytest.raises(ConfigError, match="did you mean kernel_log"):
        load(AgentConfig, path)


def test_every_key_is_documented() -> None:
    assert all(setting.help for setting in document(AgentConfig))


def test_mistakes_in_how_parts_go_together_name_the_next_step(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        'data_folder = "/one"\n[jobs]\nruntime_folder = "/one"\n'
        '[signals.modes]\nXidFatall = "enforce"\n'
        "[signals.accelerators]\nmemory_kept_ratio = 7\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load(AgentConfig, file)
    assert [problem.removeprefix(f"{file}: ") for problem in caught.value.problems] == [
        "signals.accelerators.memory_kept_ratio: must be at most 1, got 7.0",
        "data_folder: must be another folder than jobs.runtime_folder",
        "signals.modes.XidFatall: no condition has this name; did you mean XidFatal? "
        "docs/signals.md lists them (the mode of a condition of your own stands in its file)",
    ]
