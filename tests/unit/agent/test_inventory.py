"""What the node should have, compared with what it has, on data."""

from pathlib import Path

import pytest

from everstep_agent.commands.inventory_file import as_toml, write_new
from everstep_agent.detectors.inventory.detector import (
    CONDITIONS,
    SeenGpu,
    SeenInventory,
    judge_inventory,
)
from everstep_agent.detectors.inventory.expected import (
    ExpectedAccelerators,
    ExpectedDisk,
    ExpectedGpus,
    ExpectedHost,
    ExpectedInventory,
    ExpectedLinks,
)
from everstep_agent.detectors.inventory.links import SeenLink
from everstep_common.config import ConfigError, load
from everstep_common.judging.findings import FindingKey, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Unknown

_H100 = "NVIDIA H100 80GB HBM3"


def _gpu(number: int, **changes: object) -> SeenGpu:
    values: dict[str, object] = {
        "pci": f"0000:{number:02x}:00.0",
        "name": _H100,
        "memory_bytes": 85_520_809_984,
        "nvlinks": 18,
        "pcie_generation": 5,
        "pcie_width": 16,
    }
    return SeenGpu(**(values | changes))  # type: ignore[arg-type]


def _port(number: int, *, up: bool = True, gbit: float = 400) -> SeenLink:
    bits = int(gbit * 1e9) if up else 0
    return SeenLink(name=f"mlx5_{number}/1", kind="infiniband", up=up, bits_per_s=bits)


def _node(**changes: object) -> SeenInventory:
    values: dict[str, object] = {
        "gpus": tuple(_gpu(n) for n in range(8)),
        "driver": "570.86.15",
        "links": (
            *(_port(n) for n in range(8)),
            SeenLink(name="eth0", kind="ethernet", up=True, bits_per_s=25_000_000_000),
        ),
        "cpus": 192,
        "numa_nodes": 2,
        "memory_bytes": 2_163_000_000_000,
        "disks": (("/", 960_000_000_000), ("/scratch", 7_000_000_000_000)),
        "accelerators": (),
    }
    return SeenInventory(**(values | changes))  # type: ignore[arg-type]


def _expected(tmp_path: Path, node: SeenInventory | None = None) -> ExpectedInventory:
    file = tmp_path / "inventory.toml"
    file.write_text(as_toml(node or _node(), "gpu-1", "2026-11-21"), encoding="utf-8")
    return load(ExpectedInventory, file)


def _faulty(expected: ExpectedInventory, seen: SeenInventory) -> dict[str, Severity]:
    said = judge_inventory(expected, seen, ())
    keys = [one.key for one in said]
    assert len(keys) == len(set(keys)), "a condition is judged once"
    found = [one.finding for one in said if isinstance(one, Faulty)]
    return {f"{one.condition} {one.component}": one.severity for one in found}


def test_a_node_has_what_was_written_down_from_it(tmp_path: Path) -> None:
    expected = _expected(tmp_path)
    assert expected.gpus.count == 8
    assert expected.gpus.nvlinks == 18
    assert expected.required_links == (*(f"mlx5_{n}/1" for n in range(8)), "eth0")
    assert _faulty(expected, _node()) == {}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"cpus": 190}, {"CpuMissing cpu": Severity.DEGRADED}),
        ({"numa_nodes": 1}, {"NumaNodeMissing cpu": Severity.DEGRADED}),
        ({"memory_bytes": 2_000_000_000_000}, {"MemoryMissing memory": Severity.DEGRADED}),
        ({"memory_bytes": 2_150_000_000_000}, {}),
        (
            {"disks": (("/", 960_000_000_000),)},
            {"DiskMissing disk//scratch": Severity.DEGRADED},
        ),
        (
            {"links": (_node().links or ())[1:]},
            {"LinkMissing link/mlx5_0/1": Severity.FATAL},
        ),
        (
            {"links": (_port(0, gbit=200), *(_node().links or ())[1:])},
            {"LinkBelowExpectedRate link/mlx5_0/1": Severity.DEGRADED},
        ),
        # A port that is down has no rate: that it is down is said by its own detector.
        ({"links": (_port(0, up=False), *(_node().links or ())[1:])}, {}),
        (
            {"links": (_node().links or ())[8:]},
            {"LinkMissing links/infiniband": Severity.FATAL},
        ),
        (
            {"links": (*(_node().links or ()), _port(9))},
            {"DeviceUnexpected links/infiniband": Severity.INFO},
        ),
        (
            {"gpus": (_gpu(0, nvlinks=17), *(_gpu(n) for n in range(1, 8)))},
            {"GpuNotAsExpected gpu/0000:00:00.0": Severity.DEGRADED},
        ),
        # What a lost GPU was is not judged, and an older driver may not know its links.
        ({"gpus": (_gpu(0, name="?", error="lost"), _gpu(1, nvlinks=None))}, {}),
    ],
)
def test_what_is_missing_is_told(
    tmp_path: Path, changes: dict[str, object], found: dict[str, Severity]
) -> None:
    assert _faulty(_expected(tmp_path), _node(**changes)) == found


def test_what_was_not_read_is_unknown_and_never_missing(tmp_path: Path) -> None:
    strict = ExpectedInventory(
        host=ExpectedHost(cpus=2, memory_bytes=1),
        gpus=ExpectedGpus(driver="1", pci=("0000:00:00.0",)),
        links=_expected(tmp_path).links,
        disks=(ExpectedDisk(mount="/scratch"),),
        accelerators=(ExpectedAccelerators(vendor="amd", count=8),),
    )
    said = judge_inventory(strict, SeenInventory(), ())
    assert said
    assert all(isinstance(one, Unknown) for one in said)


def test_one_gpu_is_missed_by_its_address_and_all_of_them_are_not() -> None:
    expected = ExpectedInventory(gpus=ExpectedGpus(pci=tuple(_gpu(n).pci for n in range(8))))
    seven = _node(gpus=tuple(_gpu(n) for n in range(7)))
    assert _faulty(expected, seven) == {"GpuMissing gpu/0000:07:00.0": Severity.FATAL}
    assert _faulty(expected, _node(gpus=())) == {}


def test_links_without_names_are_counted_and_a_faster_one_serves_as_well() -> None:
    expected = ExpectedInventory(
        links=(
            ExpectedLinks(kind="infiniband", count=4, rate_gbit_per_s=400),
            ExpectedLinks(kind="infiniband", count=4, rate_gbit_per_s=200),
        )
    )
    eight = tuple(_port(n) for n in range(8))
    assert _faulty(expected, _node(links=eight)) == {}
    slow = tuple(_port(n, gbit=400 if n < 3 else 200) for n in range(8))
    assert _faulty(expected, _node(links=slow)) == {"LinkMissing links/infiniband": Severity.FATAL}
    down = (*eight[:7], _port(7, up=False))
    assert _faulty(expected, _node(links=down)) == {"LinkMissing links/infiniband": Severity.FATAL}


def test_another_driver_and_missing_accelerators_are_told() -> None:
    expected = ExpectedInventory(
        gpus=ExpectedGpus(driver="580.1"),
        accelerators=(ExpectedAccelerators(vendor="amd", count=8),),
    )
    found = _faulty(expected, _node(accelerators=(("amd", 7),)))
    assert found == {
        "DriverMismatch driver/nvidia": Severity.DEGRADED,
        "AcceleratorMissing accelerators/amd": Severity.FATAL,
    }


def test_what_is_not_expected_any_more_is_over() -> None:
    held = [
        FindingKey("link/mlx5_0/1", "LinkMissing"),
        FindingKey("gpu/0000:00:00.0", "XidFatal"),
    ]
    said = judge_inventory(ExpectedInventory(), _node(), held)
    assert [(type(one), one.key) for one in said if one.key in held] == [(Healthy, held[0])]


def test_every_condition_has_its_healthy_counterpart(tmp_path: Path) -> None:
    strict = ExpectedInventory(
        host=ExpectedHost(cpus=1, numa_nodes=1, memory_bytes=1000),
        gpus=ExpectedGpus(count=8, driver="570.86.15", pci=("0000:00:00.0",)),
        links=_expected(tmp_path).links,
        disks=(ExpectedDisk(mount="/"),),
        accelerators=(ExpectedAccelerators(vendor="amd", count=8),),
    )
    said = judge_inventory(strict, _node(accelerators=(("amd", 8),)), ())
    healthy = {one.key.condition for one in said if isinstance(one, Healthy)}
    assert healthy == {condition.name for condition in CONDITIONS}


def test_every_mistake_in_a_file_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "inventory.toml"
    file.write_text(
        '[host]\ncpu = 4\nmemory_bytes = "much"\nmemory_tolerance = 1.5\n'
        '[gpus]\ncount = -1\npci = ["0000:00:00.0"]\n'
        '[[links]]\nkind = "infiniban"\nnames = ["a", "a"]\n'
        '[[links]]\nkind = "ethernet"\n[[disks]]\nsize_bytes = 4\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load(ExpectedInventory, file)
    told = "\n".join(caught.value.problems)
    assert all(problem.startswith(f"{file}: ") for problem in caught.value.problems)
    assert "host.cpu: unknown key; did you mean host.cpus?" in told
    assert "host.memory_bytes: expected a whole number, got 'much'" in told
    assert "disks[0].mount: missing; expected a text" in told


def test_values_are_judged_as_well(tmp_path: Path) -> None:
    file = tmp_path / "inventory.toml"
    file.write_text(
        "[host]\nmemory_tolerance = 1.5\n"
        '[gpus]\ncount = -1\npci = ["0000:00:00.0"]\n'
        '[[links]]\nkind = "infiniban"\nnames = ["a", "a"]\n'
        '[[links]]\nkind = "ethernet"\n'
        '[[links]]\nkind = "ethernet"\nnames = ["eth0"]\ncount = 2\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load(ExpectedInventory, file)
    told = {problem.removeprefix(f"{file}: ") for problem in caught.value.problems}
    assert told == {
        "gpus.count: must be 0 or more, got -1",
        "gpus.count: -1, but 1 PCI addresses are listed",
        "host.memory_tolerance: must be below 1, got 1.5",
        "links[0].kind: expected one of infiniband, roce, ethernet, got 'infiniban'",
        "links[1].count: missing; expected a count or names",
        "links[2].count: 2, but 1 names are listed",
        "links: ethernet is expected by names here and by a count there; use one of them",
        "links: a is listed more than once",
    }


def test_a_file_that_is_there_is_replaced_only_on_demand(tmp_path: Path) -> None:
    file = tmp_path / "inventory.toml"
    write_new(file, "one", replace=False)
    with pytest.raises(FileExistsError):
        write_new(file, "two", replace=False)
    assert file.read_text(encoding="utf-8") == "one"
    write_new(file, "three", replace=True)
    assert file.read_text(encoding="utf-8") == "three"
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.toml"]


def test_what_could_never_match_or_is_told_twice_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "inventory.toml"
    file.write_text(
        '[gpus]\npci = ["0000:3b:00.0", "0000:3b:00.0", "00000000:3B:00.0"]\n'
        '[[disks]]\nmount = "data"\n[[disks]]\nmount = "/"\n[[disks]]\nmount = "/"\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load(ExpectedInventory, file)
    told = {problem.removeprefix(f"{file}: ") for problem in caught.value.problems}
    assert told == {
        "gpus.pci[2]: expected an address like \"0000:3b:00.0\", got '00000000:3B:00.0'",
        "gpus.pci: 0000:3b:00.0 is listed more than once",
        "disks[0].mount: expected a path from the root, got 'data'",
        "disks: / is listed more than once",
    }
