"""What a pod is for a launcher: namespaces of its own, a read-only root, the agent's folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child
from real.user_world import UserWorld, user_world

_NAMESPACES = ("--pid", "--fork", "--mount", "--mount-proc", "--uts", "--ipc", "--cgroup")
# What kubernetes/jobs/job.yaml asks for: the folder of the agent's socket as a hostPath, one
# volume that may be written, nothing else; 64 MiB of /dev/shm as every container gets them.
_SCRIPT = """\
set -e
mount --bind "$2" "$2"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/everstep-agent
mount --bind "$1" /run/everstep-agent
mount -o remount,bind,ro /run/everstep-agent
mount -o remount,ro /run
mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm
mount -o remount,bind,ro /
shift 2
exec "$@"
"""


def pod(sockets: Path, volume: Path) -> tuple[str, ...]:
    """Return the command that runs another one as process 1 of a container."""
    unshare = ("unshare", *_NAMESPACES, "--kill-child")
    return (*unshare, "sh", "-c", _SCRIPT, "pod", str(sockets), str(volume))


def first_process(container: Child) -> int:
    """Return what a container calls process 1, by its number on this machine."""
    parent = container.process.pid
    (found,) = [pid for pid, above in reaper.parents().items() if above == parent]
    return found


@contextmanager
def pod_world(nodes: Sequence[str], script: Sequence[object], *options: str) -> Iterator[UserWorld]:
    """Yield a fleet with its agents on the host, whose launchers are each in a pod."""
    with user_world(nodes, script, *options) as world:
        world.enter = lambda name: pod(world.socket(name).parent, world.folder)
        # Found where hostPath puts it; the token is a Secret. There is no HOME.
        world.variables = {"EVERSTEP_SOCKET": "", "EVERSTEP_JOB_TOKEN": "a secret of the cluster"}
        yield world
