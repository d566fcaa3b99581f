"""The command line of ``everstep run``, checked before anything is started."""

import argparse
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everstep.launch.keep_options import KeepError, KeepOptions, add_keep_options, keep_options

# Where the packaged unit puts the agent's socket, and where an agent without root puts it.
_SYSTEM_SOCKET = "/run/everstep-agent/agent.sock"
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DESCRIPTION = """\
Start this node's part of a distributed training job, and keep the job stepping: processes that
fail are replaced and go on from the last step that every shard can be restored from.
Run the same command on every node of the job; nodes beyond the maximum wait as spares."""
_EXAMPLE = """\
example:
  everstep run --job llama --nnodes 3:4 --nproc-per-node 8 -- python train.py --epochs 3
The processes get torchrun's environment (RANK, WORLD_SIZE, MASTER_ADDR …). In the script:
  run = everstep.init(); snapshots = run.snapshots({"model": weights}); snapshots.restore()"""


class UsageError(Exception):
    """The command line cannot be used; one sentence with the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the user asked for."""

    job: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int
    reform: bool
    restarts_max: int
    token_file: Path | None
    socket: str
    logs: Path | None
    grace_s: float
    command: tuple[str, ...]
    keep: KeepOptions = field(default_factory=KeepOptions)


def parse_options(
    arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> LaunchOptions:
    """Return the options. Raises UsageError; SystemExit for --help and what argparse refuses."""
    ours, command = _split(arguments)
    values, unknown = _parser().parse_known_args(ours)
    if unknown:
        raise UsageError(_stray(unknown, command))
    if not _JOB_NAME.fullmatch(values.job):
        raise UsageError(
            f"--job {values.job!r}: use up to 64 letters, digits, dots, dashes and underscores"
        )
    nodes_min, nodes_max = parse_nodes(values.nnodes)
    try:
        keep = keep_options(values, environ)
    except KeepError as error:
        raise UsageError(str(error)) from error
    if values.nproc_per_node < 1 or values.max_restarts < 0 or values.grace < 0:
        raise UsageError("--nproc-per-node must be above 0, --max-restarts and --grace not below 0")
    return LaunchOptions(
        job=values.job,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        processes_per_node=values.nproc_per_node,
        reform=values.policy == "reform",
        restarts_max=values.max_restarts,
        token_file=values.token_file,
        socket=values.socket or default_socket(environ),
        logs=values.logs,
        grace_s=values.grace,
        command=checked_command(command),
        keep=keep,
    )


def parse_nodes(text: str) -> tuple[int, int]:
    """Return the least and the most nodes that ``4`` or ``3:4`` means. Raises UsageError."""
    matched = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text)
    if matched:
        least = int(matched[1])
        most = int(matched[2] or least)
        if 1 <= least <= most:
            return least, most
    raise UsageError(f"--nnodes {text!r}: expected a number or MIN:MAX from 1 up, for example 3:4")


def default_socket(environ: Mapping[str, str] = os.environ) -> str:
    """Return the agent's socket: EVERSTEP_SOCKET, the system's agent, or this user's own."""
    if given := environ.get("EVERSTEP_SOCKET"):
        return given
    own = [_SYSTEM_SOCKET]
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        own.append(f"{runtime}/everstep-agent/agent.sock")
    own.append(os.path.expanduser("~/.local/state/everstep-agent/run/agent.sock"))
    return next((path for path in own if os.path.exists(path)), _SYSTEM_SOCKET)


def checked_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command when it can be started here. Raises UsageError."""
    if not command:
        raise UsageError("what to start is missing; end the command with '-- python train.py …'")
    program = command[0]
    if shutil.which(program) is None:
        if program.endswith(".py") and os.path.exists(program):
            raise UsageError(f"{program} is not executable; write '-- python {program} …'")
        if os.path.exists(program):
            raise UsageError(f"{program} is not executable; name a program that is")
        raise UsageError(f"no command {program!r} on this node; give a path or correct PATH")
    script = _script(command)
    if script is not None and not os.path.exists(script):
        raise UsageError(f"no script {script!r} in {os.getcwd()}; give its path")
    return tuple(command)


def _script(command: Sequence[str]) -> str | None:
    """Return the script that a Python interpreter would run, if that can be told."""
    if not re.fullmatch(r"(python|pypy)[0-9.]*", os.path.basename(command[0])):
        return None
    for argument in command[1:]:
        if argument.startswith("-"):
            if argument in ("-c", "-m", "-"):
                return None
            continue
        return argument if argument.endswith(".py") else None
    return None


def _stray(unknown: Sequence[str], command: Sequence[str]) -> str:
    if not command and not unknown[0].startswith("-"):
        return f"put '--' before what to start: everstep run … -- {' '.join(unknown)}"
    return f"{unknown[0]!r} is no option; 'everstep run --help' lists them"


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep run",
        usage="everstep run --job NAME [options] -- COMMAND …",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--job", required=True, metavar="NAME", help="the job's name, equal on all of its nodes")
    add("--nnodes", default="1", metavar="MIN:MAX", help="how many nodes train (default 1)")
    add("--nproc-per-node", default=1, type=int, metavar="N", help="processes here (default 1)")
    add(
        "--policy",
        choices=("reform", "wait"),
        default="reform",
        help="without a spare: go on with fewer nodes, at least MIN (default), or wait for one",
    )
    add(
        "--max-restarts",
        default=10,
        type=int,
        metavar="N",
        help="restarts without a step of progress before the job is given up (default 10)",
    )
    add("--token-file", type=Path, metavar="F", help="the job's secret (made if absent)")
    add("--socket", metavar="PATH", help="the agent's socket (default: EVERSTEP_SOCKET)")
    add("--logs", type=Path, metavar="DIR", help="also keep each rank's output in files here")
    add(
        "--grace",
        default=10.0,
        type=float,
        metavar="SECONDS",
        help="between SIGTERM and SIGKILL on Ctrl-C (default 10)",
    )
    add_keep_options(parser)
    return parser
