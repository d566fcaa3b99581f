"""Storing starts: who else of this user stores steps of the same job to the same place right now.

Each start with services of its own has a controller that knows no other one, so none refuses a
second start of a job, which takes the place over. Names of abstract sockets (unix(7)) tell of it:
they end with their process, by whatever that ends, and lie in no folder. They are known within a
network namespace, so starts on other machines and in other containers are not seen.
"""

import contextlib
import hashlib
import os
import socket
import struct
from collections.abc import Iterator

# So many at once tell of each other.
_STARTS_MAX = 8
_CALLERS_MAX = 64


@contextlib.contextmanager
def storing_start(place: str, job: str) -> Iterator[tuple[int, ...]]:
    """Let later starts know of this one; yield the processes of those that live."""
    place = os.path.realpath(place) if os.path.isabs(place) else place  # a bucket has one name
    told = hashlib.sha256(os.fsencode(f"{place}\n{job}")).hexdigest()[:32]
    names = [f"\0everstep/{os.geteuid()}/{told}/{number}" for number in range(_STARTS_MAX)]
    others = tuple(pid for name in names if (pid := _process_at(name)) is not None)
    with contextlib.ExitStack() as stack:
        for name in names:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            with contextlib.suppress(OSError):  # it is another start's
                listener.bind(name)
                listener.listen(_CALLERS_MAX)
                break
        yield others


def _process_at(name: str) -> int | None:
    """Return which process of this user has a name; 0 where it is not to be seen from here."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)
        try:
            caller.connect(name)
        except OSError:
            return None
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid if uid == os.geteuid() else None


def taken_over(job: str, place: str, processes: tuple[int, ...]) -> str:
    """Say that this start takes the place over from others that live."""
    seen = [str(pid) for pid in processes if pid]
    which = f" (process{'es' * (len(seen) > 1)} {', '.join(seen)})" if seen else ""
    return (
        f"job {job} stores its steps in {place} from an earlier start as well, which still"
        f" runs{which}: this one takes over, and what that one makes is stored no more; end one of"
        " them, or start it with another --persist or --job"
    )
