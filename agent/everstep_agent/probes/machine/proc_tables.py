"""Tables of /proc: parsed into numbers; text that the kernel would not write raises ValueError."""

from collections.abc import Collection

# Documentation/admin-guide/iostats.rst: always 512 bytes, whatever the disk's own sector is.
_SECTOR_BYTES = 512


def cpu_ticks(stat: bytes) -> tuple[int, int]:
    """Return (all, idle) ticks of all CPUs since boot, from /proc/stat."""
    name, *fields = stat[:512].partition(b"\n")[0].split()
    if name != b"cpu" or len(fields) < 5:
        raise ValueError("/proc/stat does not begin with the ticks of all CPUs")
    # Guest time, behind the eighth, is part of user time already. Waiting for a disk is idle.
    ticks = [int(field) for field in fields[:8]]
    return sum(ticks), ticks[3] + ticks[4]


def memory_bytes(meminfo: bytes, names: Collection[bytes]) -> dict[bytes, int]:
    """Return the named lines of /proc/meminfo in bytes; those that are not there are left out."""
    found: dict[bytes, int] = {}
    for line in meminfo.split(b"\n"):
        name, _, rest = line.partition(b":")
        if name in names and (fields := rest.split()):
            found[name] = int(fields[0]) * 1024
            if len(found) == len(names):
                break
    return found


def load(loadavg: bytes) -> tuple[float, float, int]:
    """Return the load over one and five minutes, and how many tasks there are."""
    one, five, _, tasks = loadavg.split()[:4]
    return float(one), float(five), int(tasks.partition(b"/")[2])


def disk_traffic(diskstats: bytes, disks: Collection[bytes]) -> tuple[int, int]:
    """Return the bytes that the named disks have read and written since boot."""
    read = written = 0
    for line in diskstats.split(b"\n"):
        fields = line.split()
        if len(fields) >= 10 and fields[2] in disks:
            read += int(fields[5])
            written += int(fields[9])
    return read * _SECTOR_BYTES, written * _SECTOR_BYTES


def network_traffic(dev: bytes, interfaces: Collection[bytes]) -> tuple[int, int, int]:
    """Return bytes received and sent by the named interfaces, and their errors both ways."""
    received = sent = errors = 0
    for line in dev.split(b"\n"):
        name, colon, rest = line.partition(b":")
        if not colon or name.strip() not in interfaces:
            continue
        fields = rest.split()
        if len(fields) < 11:
            raise ValueError("/proc/net/dev: an interface has too few fields")
        received += int(fields[0])
        sent += int(fields[8])
        errors += int(fields[2]) + int(fields[10])
    return received, sent, errors


def process_fields(stat: bytes) -> tuple[str, list[bytes]]:
    """Return a process's name and the fields behind it, from /proc/PID/stat."""
    # The name may hold spaces, brackets and line ends: only the last bracket ends it.
    before, bracket, after = stat.rpartition(b")")
    if not bracket:
        raise ValueError("/proc/PID/stat has no name in brackets")
    fields = after.split()
    if len(fields) < 22:
        raise ValueError("/proc/PID/stat has too few fields")
    return before.partition(b"(")[2].decode("utf-8", errors="replace"), fields


def counter_in(table: bytes, name: bytes) -> int | None:
    """Return a counter of a table with lines like "oom_kill 3"; None where it is not there."""
    at = (b"\n" + table).find(b"\n" + name + b" ")
    if at < 0:
        return None
    return int(table[at + len(name) : at + len(name) + 32].partition(b"\n")[0])
