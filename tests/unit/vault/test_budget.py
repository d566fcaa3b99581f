"""What fits, and what is said when it does not."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.budget import Limits, NodeMemory, Use, refusal, room


def test_what_fits_is_not_refused() -> None:
    assert refusal(3, 100, room(300, Limits(), Use(0, 0))) is None


def test_a_refusal_names_the_tightest_limit_and_what_would_fit() -> None:
    limits = Limits(reserve_bytes=10, total_bytes=200, per_user_bytes=150)
    said = refusal(3, 100, room(1000, limits, Use(100, 90)))
    assert said == (
        "3 x 100 bytes of snapshot memory were asked for and jobs.memory_per_user_bytes_max "
        "leaves 60 bytes: 3 x 20 bytes would fit"
    )


@given(*[st.integers(0, 1000)] * 4)
def test_nothing_above_what_is_available_is_ever_granted(
    wanted: int, available: int, reserve: int, used: int
) -> None:
    left = room(available, Limits(reserve, 500), Use(used, 0))
    if wanted and refusal(1, wanted, left) is None:
        assert wanted <= available - reserve
        assert used + wanted <= 500


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
