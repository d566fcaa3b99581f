"""How much memory a node has: of the kernel, of cgroups, of the pool of huge pages."""

from pathlib import Path

from everstep_agent.vault.memory.gauges import HugePagePool, NodeMemory


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_cgroup_above_the_agent_limits_what_the_node_has(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 10 kB\nMemAvailable:    8 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/system/agent\n")
    groups = tmp_path / "cgroup"
    _write(groups / "system/memory.max", "4096\n")
    _write(groups / "system/memory.current", "1000\n")
    _write(groups / "system/agent/memory.max", "max\n")
    _write(groups / "system/agent/memory.current", "500\n")
    assert NodeMemory(tmp_path / "proc", groups).available_bytes() == 3096


def test_a_cgroup_of_version_1_limits_too_and_its_no_limit_is_none(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable:    8 kB\n")
    _write(tmp_path / "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/jobs/agent\n0::/\n")
    groups = tmp_path / "cgroup"
    _write(groups / "memory/jobs/memory.limit_in_bytes", "6000\n")
    _write(groups / "memory/jobs/memory.usage_in_bytes", "1000\n")
    _write(groups / "memory/jobs/agent/memory.limit_in_bytes", "9223372036854771712\n")
    _write(groups / "memory/jobs/agent/memory.usage_in_bytes", "500\n")
    assert NodeMemory(tmp_path / "proc", groups).available_bytes() == 5000


def test_page_cache_that_the_kernel_would_drop_is_room(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable:    8 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/agent\n")
    _write(tmp_path / "cgroup/agent/memory.max", "4096\n")
    _write(tmp_path / "cgroup/agent/memory.current", "4000\n")
    _write(tmp_path / "cgroup/agent/memory.stat", "anon 900\nfile 3100\ninactive_file 2500\n")
    assert NodeMemory(tmp_path / "proc", tmp_path / "cgroup").available_bytes() == 2596


def test_page_cache_of_version_1_is_that_of_all_below(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable:    8 kB\n")
    _write(tmp_path / "proc/self/cgroup", "4:memory:/agent\n")
    groups = tmp_path / "cgroup/memory/agent"
    _write(groups / "memory.limit_in_bytes", "4096\n")
    _write(groups / "memory.usage_in_bytes", "4000\n")
    _write(groups / "memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n")
    assert NodeMemory(tmp_path / "proc", tmp_path / "cgroup").available_bytes() == 2096


def test_in_a_container_whose_paths_are_the_hosts_its_own_limit_counts(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable:    8 kB\n")
    for path in ("/docker/4f2a", "/../elsewhere"):
        _write(tmp_path / "proc/self/cgroup", f"0::{path}\n")
        _write(tmp_path / "cgroup/memory.max", "3000\n")
        _write(tmp_path / "cgroup/memory.current", "1000\n")
        assert NodeMemory(tmp_path / "proc", tmp_path / "cgroup").available_bytes() == 2000


def test_without_cgroups_the_kernel_s_word_counts(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable:    8 kB\n")
    _write(tmp_path / "proc/self/cgroup", "1:name=systemd:/\n")
    assert NodeMemory(tmp_path / "proc", tmp_path).available_bytes() == 8192


def test_huge_pages_that_somebody_has_reserved_are_no_room(tmp_path: Path) -> None:
    _write(tmp_path / "free_hugepages", "10\n")
    _write(tmp_path / "resv_hugepages", "4\n")
    assert HugePagePool(tmp_path).available_bytes() == 6 * (2 << 20)


def test_a_kernel_without_a_pool_of_huge_pages_has_none(tmp_path: Path) -> None:
    assert HugePagePool(tmp_path / "nothing").available_bytes() == 0
