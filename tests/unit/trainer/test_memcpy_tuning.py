"""Where glibc's idea of the caches is one that no processor has."""

from pathlib import Path

import pytest

from everstep.launch.memcpy_tuning import cache_share_bytes, memcpy_variables, tunables

_MIB = 1024**2


def _cache(folder: Path, size: str, sharers: str) -> Path:
    (folder / "size").write_text(size)
    (folder / "shared_cpu_list").write_text(sharers)
    return folder


@pytest.mark.parametrize(
    ("size", "sharers", "share_bytes"),
    [
        ("491520K\n", "0-1\n", 240 * _MIB),
        ("107520K\n", "0-55,112-167\n", 107520 * 1024 // 112),
        ("32M\n", "0,8\n", 16 * _MIB),
        ("2097152\n", "3\n", 2 * _MIB),
    ],
)
def test_a_share_is_the_cache_by_those_who_share_it(
    size: str, sharers: str, share_bytes: int
) -> None:
    assert cache_share_bytes(size, sharers) == share_bytes


@pytest.mark.parametrize(
    ("size", "sharers"), [("", "0"), ("32 MiB", "0"), ("32M", ""), ("1M", "a-b")]
)
def test_what_is_no_cache_is_refused(size: str, sharers: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        cache_share_bytes(size, sharers)


def test_the_share_of_a_real_processor_is_left_to_glibc() -> None:
    assert tunables(107520 * 1024 // 112) == {}
    assert tunables(32 * _MIB) == {}


def test_a_virtual_machine_with_its_hosts_cache_gets_a_threshold(tmp_path: Path) -> None:
    cache = _cache(tmp_path, "491520K\n", "0-1\n")
    assert memcpy_variables({}, "x86_64", cache) == {
        "GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0x800000"
    }


@pytest.mark.parametrize("said", ["", "glibc.malloc.perturb=1"])
def test_what_the_user_has_said_to_glibc_stays(tmp_path: Path, said: str) -> None:
    cache = _cache(tmp_path, "491520K\n", "0-1\n")
    assert memcpy_variables({"GLIBC_TUNABLES": said}, "x86_64", cache) == {}


def test_other_processors_and_unknown_caches_are_left_alone(tmp_path: Path) -> None:
    assert memcpy_variables({}, "x86_64", tmp_path) == {}
    assert memcpy_variables({}, "aarch64", _cache(tmp_path, "491520K\n", "0-1\n")) == {}
    assert memcpy_variables({}, "x86_64", _cache(tmp_path, "big\n", "0-1\n")) == {}
