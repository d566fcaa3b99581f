"""What two drivers and groups cost a controller in the steady state: real streams, a real Slurm.

A generator has so many agents in one process, as in the benchmark of the transport; the controller
is a process of its own, and its programs' processor time counts too. Each round has as many
readings of Slurm as the shipped interval gives.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from fleet.site import SlurmSite, running_slurm
from harness.daemons import controller_command, secret_file
from harness.processes import (
    free_port,
    module_command,
    process_cpu_s,
    reaped_children_cpu_s,
    running,
    wait_for_port,
)
from harness.table import Row, Series, Target
from harness.talk import Talk
from harness.waits import until_quiet
from transport.agent import name_of
from transport.benchmark import STEP_S

from everstep_proto.local.secret import make_secret

_START_S, _QUIET_S = 120.0, 1.5
_RATIO = Target(1.1)
_PROGRAM = Path(__file__).parents[2] / "tests" / "integration" / "isolation_program.py"


def steady(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the cost of a second with two drivers and groups, beside one without."""
    nodes = options.agents
    names = [name_of(index) for index in range(nodes)]
    spent: dict[bool, list[float]] = {False: [], True: []}
    with running_slurm(nodes, options.slurm, names) as site:
        for driven in (False, True):
            spent[driven] = _spent(site, nodes, options, driven)
    what = f"{nodes} agents, a step every {STEP_S:g} s: "
    plain = Series(f"{what}without drivers", spent[False], "cores")
    yield plain.figure()
    both = Series(f"{what}with Slurm, a program and groups", spent[True], "cores")
    yield both.against(plain, _RATIO)


def _spent(site: SlurmSite, nodes: int, options: argparse.Namespace, driven: bool) -> list[float]:
    """Return the cores that a controller and its programs take, in each round."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
        port = free_port()
        make_secret(secret_file(folder))
        fleet = module_command("transport.fleet", port, nodes, secret_file(folder))
        talk = Talk(stack.enter_context(running(fleet)))
        command = controller_command(folder, port, _tables(site, folder) if driven else "")
        process = stack.enter_context(running(command))
        wait_for_port(port, process, _START_S)
        until_quiet(process.pid, _START_S)
        talk.ask("connect")
        talk.ask("join")
        talk.ask("quiet", _QUIET_S)
        rounds = []
        for _ in range(options.repeats):
            before_s = process_cpu_s(process.pid) + reaped_children_cpu_s(process.pid)
            talk.ask("steady", options.seconds, STEP_S)
            after_s = process_cpu_s(process.pid) + reaped_children_cpu_s(process.pid)
            rounds.append((after_s - before_s) / options.seconds)
        talk.ask("let_go")
        return rounds


def _tables(site: SlurmSite, folder: Path) -> str:
    """Return the configuration of both drivers, and of groups by a label and by names."""
    argv = json.dumps([sys.executable, str(_PROGRAM), str(folder / "site.json"), "well"])
    first = json.dumps(site.nodes[: len(site.nodes) // 2])
    return (
        f"[drivers.command]\nargv = {argv}\n"
        f'[drivers.slurm]\nenabled = true\nconf_file = "{site.config.conf_file}"\n'
        '[groups.h100]\nlabels = ["feature=h100"]\ndrivers = ["slurm"]\n'
        f'[groups.first]\nnodes = {first}\nmode = "advise"\ndrivers = ["command"]\n'
    )
