"""An unprivileged user who harms what he can reach; run by tests beside a job of somebody else.

Arguments: names of attacks, a round of each in turn; how long in seconds; his target as JSON.
Started by root, so that he needs no rights to the files of the tests; he gives his rights up before
he attacks. Prints one line of JSON: an `Outcome`.
"""

import ctypes
import encodings.idna  # noqa: F401  getaddrinfo imports it when it is first used
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

from real.attacks_on_files import ATTACKS_ON_FILES
from real.attacks_on_ports import ATTACKS_ON_PORTS
from real.attacks_on_sockets import ATTACKS_ON_SOCKETS
from real.attacks_target import Attack, Outcome, Target

ATTACKS: dict[str, Attack] = {**ATTACKS_ON_SOCKETS, **ATTACKS_ON_PORTS, **ATTACKS_ON_FILES}
_PR_SET_NO_NEW_PRIVS = 38
_OPEN_FILES = 8192
_OVER = object()


def main(names: Sequence[str], seconds: float, target: Target) -> Outcome:
    """Make attacks as an unprivileged user, a round of each in turn, until the time is over."""
    # Nothing may be imported later, from folders that he perhaps cannot read.
    _give_rights_up(target.uid)
    outcome = Outcome()
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        attacks = [stack.enter_context(closing(ATTACKS[name](target, outcome))) for name in names]
        while attacks and time.monotonic() < until:
            attacks = [attack for attack in attacks if next(attack, _OVER) is not _OVER]
            outcome.rounds += 1
    return outcome


def _give_rights_up(uid: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    # With real, effective and saved user id the kernel takes all capabilities.
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    capabilities = Path("/proc/self/status").read_text(encoding="utf-8")
    assert "CapEff:\t0000000000000000" in capabilities
    os.chdir("/")


if __name__ == "__main__":
    done = main(sys.argv[1].split(","), float(sys.argv[2]), Target(**json.loads(sys.argv[3])))
    print(json.dumps(asdict(done)), flush=True)
