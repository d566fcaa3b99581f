"""What this machine lets root do: a sandbox may forbid namespaces, mounts or control groups."""

import shutil
import subprocess
from functools import cache

_NAMESPACE = "mount -t sysfs sysfs /sys && ip link add one type veth peer name two"
_CONTAINER = (
    "mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root && "
    "mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root && "
    "for procs in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/systemd/cgroup.procs; do "
    '[ ! -e "$procs" ] || [ -w "$procs" ] || exit 1; done'
)
_FUSE = (
    "mkdir -p /tmp/everstep-fuse.$$ && exec 3<>/dev/fuse && mount --internal-only -t fuse "
    "-o fd=3,rootmode=40000,user_id=0,group_id=0 x /tmp/everstep-fuse.$$ "
    "&& umount --lazy /tmp/everstep-fuse.$$; code=$?; rmdir /tmp/everstep-fuse.$$; exit $code"
)
_POD = (
    "exec unshare --pid --fork --mount --mount-proc --uts --ipc --cgroup sh -c "
    "'mount -t tmpfs tmpfs /run && mount -o remount,bind,ro / && ! touch /everstep-pod 2>/dev/null'"
)


@cache
def denied(script: str) -> str:
    """Return why a script cannot run in namespaces of its own; empty when it can."""
    if shutil.which("unshare") is None:
        return "the sandbox denies: unshare is not there"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", script], capture_output=True, text=True
    )
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return f"the sandbox denies: {said[-1]}"


def denies_interfaces() -> str:
    """Return why no interfaces can be made in a network namespace; empty when they can."""
    return denied(_NAMESPACE)


def denies_containers() -> str:
    """Return why no container can be booted; empty when one can."""
    return denied(_CONTAINER)


def denies_fuse() -> str:
    """Return why no FUSE file system can be mounted; empty when one can."""
    return denied(_FUSE)


def denies_pods() -> str:
    """Return why nothing can be run as a container is; empty when it can."""
    return denied(_POD)
