"""The parsers of /proc and /sys: real lines, and whatever else a file may hold."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_agent.probes.machine import proc_tables
from everstep_agent.probes.machine.clock import Timex, read_clock
from everstep_agent.probes.machine.host import HostProbe, UsageProbe
from everstep_agent.probes.machine.host_hardware import read_hardware
from everstep_agent.probes.machine.kernel_files import KeptFile, number_in
from everstep_agent.probes.machine.storage import StorageProbe
from everstep_agent.probes.machine.tasks import TaskScan

# Files of an ordinary node, under proc/ and sys/, that every probe here can read.
_FILES = {
    "proc/stat": "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\nbtime 1763690000\n",
    "proc/meminfo": (
        "MemTotal: 1000 kB\nMemAvailable: 500 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n"
    ),
    "proc/loadavg": "1.50 2.50 3.00 2/345 6789\n",
    "proc/diskstats": " 259 0 nvme0n1 1 0 2000 0 1 0 4000 0 0\n 259 1 nvme0n1p1 1 0 2 0 1 0 4\n",
    "proc/net/dev": "Inter-|\n face |bytes\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n    lo: 9\n",
    "proc/self/stat": "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 200 100 0 0 20 0 1 0 55 0 3 0\n",
    "proc/self/mountinfo": (
        "27 1 259:1 / / ro,relatime - ext4 /dev/nvme0n1p1 rw,errors=remount-ro\n"
        "28 27 0:40 / /data\\040a rw - nfs4 filer:/export rw,hard\n"
    ),
    "proc/filesystems": "nodev\tsysfs\nnodev\tnfs4\n\text4\n",
    "proc/vmstat": "nr_free_pages 5\noom_kill 3\n",
    "proc/sys/fs/file-nr": "1000\t0\t9223372036854775807\n",
    "proc/sys/kernel/pid_max": "4194304\n",
    "proc/sys/kernel/threads-max": "100000\n",
    "proc/sys/net/netfilter/nf_conntrack_count": "5\n",
    "proc/sys/net/netfilter/nf_conntrack_max": "100\n",
    "sys/block/nvme0n1/device/model": "disk\n",
    "sys/block/md0/md/degraded": "1\n",
    "sys/class/net/eth0/device/vendor": "0x15b3\n",
    "sys/class/nvme/nvme0/state": "live\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
    "sys/devices/system/edac/mc/mc0/ce_noinfo_count": "0\n",
    "sys/devices/system/edac/mc/mc0/ue_noinfo_count": "0\n",
    "sys/devices/system/edac/mc/mc0/dimm1/dimm_label": "CPU0_DIMM_A1\n",
    "sys/devices/system/edac/mc/mc0/dimm1/dimm_ce_count": "7\n",
    "sys/devices/system/edac/mc/mc0/dimm1/dimm_ue_count": "1\n",
    "etc/fstab": "# a table\n/dev/nvme0n1p1 / ext4 errors=remount-ro 0 1\nx /cd iso9660 ro 0 0\n",
}


def _tree(root: Path) -> Path:
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "proc/7").symlink_to(root / "proc/self")
    return root


def _statvfs(_path: str) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, 1000, 500, 400, 100, 50, 50, 0, 255, 1))


def _adjtimex(timex: Timex) -> int:
    timex.status = 0x2000
    timex.offset = -5_000_000
    timex.maxerror = 20_000
    return 0


def _readers(root: Path) -> dict[str, Callable[[], object]]:
    proc, sysfs = root / "proc", root / "sys"
    return {
        "host": HostProbe(proc, sysfs).read,
        "usage": UsageProbe(proc).read,
        "hardware": lambda: read_hardware(sysfs),
        "clock": lambda: read_clock(sysfs, _adjtimex),
        "storage": StorageProbe(proc, sysfs, root / "etc/fstab", _statvfs).read,
        "tasks": TaskScan(proc, 6).read,
    }


def test_a_node_is_read_as_its_files_say(tmp_path: Path) -> None:
    told = {name: repr(read()) for name, read in _readers(_tree(tmp_path)).items()}
    for name, words in {
        "host": ("load_1m=1.5", "load_5m=2.5", "tasks=345", "memory_available_bytes=512000",
                 "swap_used_bytes=10240", "disk_read_bytes=1024000", "disk_written_bytes=2048000",
                 "network_received_bytes=10", "network_sent_bytes=20", "network_errors=5",
                 "agent_cpu_s=3.0", "cpu_busy_ratio=0.15"),
        "usage": ("tasks_max=100000", "connections=Usage(used=5, limit=100)", "oom_kills=3",
                  "booted_at_s=1763690000",
                  "open_files=Usage(used=1000, limit=9223372036854775807)"),
        "hardware": ("(('powersave', 1),)", "throttled=4", "'mc0/dimm1', label='CPU0_DIMM_A1', "
                     "corrected=7, uncorrected=1", "edac=True"),
        "clock": ("synchronized=True", "offset_s=-0.005", "max_error_s=0.02", "source='hpet'"),
        "storage": ("mount='/'", "writable=True", "inodes=100", "inodes_free=50", "/data a",
                    "nvme=(('nvme0', 'live'),)", "arrays=(('md0', 1),)",
                    "writable_by_table=frozenset({'/'})"),
        "tasks": ("zombies=0", "processes=1"),
    }.items():  # fmt: skip
        assert [word for word in words if word not in told[name]] == [], told[name]


_CONTENT = st.one_of(
    st.just(b""),
    st.binary(max_size=64),
    st.text("0123456789 -:()/kB\n\t", max_size=200).map(str.encode),
    st.integers(1, 40).map(lambda digits: b"9" * digits * 20),
    st.just(b"\x00\xff" * 40_000),
    st.just(None),
)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(sorted(_FILES)), content=_CONTENT)
def test_whatever_a_file_holds_the_reader_reads_or_says_that_it_cannot(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes | None
) -> None:
    root = _tree(tmp_path_factory.mktemp("node"))
    readers = _readers(root)
    (root / name).unlink()
    if content is not None:
        (root / name).write_bytes(content)
    for read in readers.values():
        with contextlib.suppress(OSError, ValueError):
            read()


@pytest.mark.parametrize("name", sorted(_FILES))
def test_a_file_that_vanishes_between_two_looks_harms_nobody(tmp_path: Path, name: str) -> None:
    readers = _readers(_tree(tmp_path))
    for read in readers.values():
        read()
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    for read in readers.values():
        with contextlib.suppress(OSError, ValueError):
            read()


@given(text=st.binary(max_size=200))
def test_any_bytes_are_a_table_or_a_value_error(text: bytes) -> None:
    for parse in (
        proc_tables.cpu_ticks,
        proc_tables.load,
        proc_tables.process_fields,
        lambda table: proc_tables.memory_bytes(table, (b"MemTotal",)),
        lambda table: proc_tables.disk_traffic(table, (b"sda",)),
        lambda table: proc_tables.network_traffic(table, (b"eth0",)),
        lambda table: proc_tables.counter_in(table, b"oom_kill"),
    ):
        with contextlib.suppress(ValueError):
            parse(text)


def test_a_kept_file_is_read_anew_and_found_again_when_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("1\n")
    kept = KeptFile(path)
    assert kept.read() == b"1\n"
    path.write_text("2\n")
    assert kept.read() == b"2\n"
    kept.close()
    path.unlink()
    path.write_text("3\n")
    assert kept.read() == b"3\n"


def test_a_number_of_absurd_length_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("9" * 5000)
    assert number_in(tmp_path / "n") is None


def test_all_processes_are_looked_at_first_and_then_a_slice_at_a_time(tmp_path: Path) -> None:
    def process(pid: int, state: str, flags: int, name: str = "python3") -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        rest = " ".join(["0"] * 12)
        text = f"{pid} ({name}) {state} 1 1 1 0 -1 {flags} {rest} {pid} 0 0 0"
        (tmp_path / str(pid) / "stat").write_text(text)

    for pid in range(100, 112):
        process(pid, "S", 0)
    process(50, "D", 0x00200000, "kworker/0:1")
    process(51, "D", 0x00200000, "nvidia-modeset/kthread_q")
    process(60, "Z", 0)
    scan = TaskScan(tmp_path, 6)
    first = scan.read()
    assert first is not None
    assert [(task.pid, task.name, task.kernel) for task in first.waiting] == [
        (51, "nvidia-modeset/kthread_q", True)
    ]
    assert (first.zombies, first.processes) == (1, 15)
    process(105, "D", 0)
    (tmp_path / "105/wchan").write_text("rpc_wait_bit_killable")
    # The second round's last slice: a sixth of the thirteen that are not the kernel's, each time.
    readings = [scan.read() for _ in range(5)]
    assert readings[:4] == [None] * 4
    (second,) = [reading for reading in (*readings[4:], scan.read()) if reading is not None]
    assert [task.where for task in second.waiting if task.pid == 105] == ["rpc_wait_bit_killable"]


def test_whose_a_waiting_process_is_and_whose_program_collects_no_zombies(tmp_path: Path) -> None:
    def process(pid: int, state: str, parent: int, uid: int) -> None:
        (tmp_path / str(pid)).mkdir()
        rest = " ".join(["0"] * 13)
        text = f"{pid} (a) b) {state} {parent} 1 1 0 -1 {rest} {pid} 0 0 0"
        (tmp_path / str(pid) / "stat").write_text(text)
        (tmp_path / str(pid) / "status").write_text(f"Name:\tUid:\nUid:\t{uid}\t0\t0\t0\n")

    process(1, "S", 0, 0)
    process(10, "S", 1, 1000)
    process(11, "D", 10, 1000)
    process(12, "Z", 10, 0)
    process(13, "Z", 1, 1000)
    process(14, "Z", 1, 1000)
    reading = TaskScan(tmp_path, 6).read()
    assert reading is not None
    assert [(task.pid, task.uid) for task in reading.waiting] == [(11, 1000)]
    assert (reading.zombies, reading.zombies_of_users) == (2, 1)


def test_the_real_files_of_this_machine_are_read() -> None:
    readers = _readers(Path("/"))
    readers["clock"] = lambda: read_clock(Path("/sys"))
    readers["storage"] = StorageProbe(Path("/proc"), Path("/sys")).read
    for name, read in readers.items():
        assert read() is not None, name
