"""What the agent says of its own cost, over real processes."""

import subprocess
import sys

import psutil

from everstep_agent.probes.own_cost import OwnCost

_BUSY = """
x = bytearray(30 << 20)
for _ in range(10**6):
    pass
print(1, flush=True)
input()
"""
# The kernel counts CPU time in ticks of 10 ms; user and system time of two processes are four.
_TICKS_S = 0.05


def test_a_helper_counts_while_it_lives_and_its_time_afterwards() -> None:
    cost = OwnCost(psutil.Process())
    before = cost.read()
    child = subprocess.Popen(
        [sys.executable, "-c", _BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    during = cost.read()
    child.communicate(b"\n")
    after = cost.read()
    assert during.processes == before.processes + 1
    assert during.private_bytes - before.private_bytes > 30 << 20
    assert during.cpu_s > before.cpu_s
    assert after.processes == before.processes
    assert after.cpu_s >= during.cpu_s - _TICKS_S
