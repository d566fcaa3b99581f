"""Program of a test that runs another one as a field runs its machines.

isolating_program.py GRACE_S GROUP COMMAND [ARGUMENT ...]
"""

import sys
from functools import partial

from field.machines.isolation import EndRequests, run_isolated
from field.machines.machine import thaw_groups


def main() -> None:
    grace_s, group, *command = sys.argv[1:]
    with EndRequests() as requests:
        print("asked from now on", flush=True)
        thaw = partial(thaw_groups, group)
        run = partial(run_isolated, command, requests, own_network=True, thaw=thaw)
        print(f"code {run(grace_s=float(grace_s))}", flush=True)


if __name__ == "__main__":
    main()
