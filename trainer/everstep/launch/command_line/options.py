"""The command line of ``everstep run``, checked before anything is started."""

import argparse
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep.launch.command_line.devices import ranks_per_node
from everstep.launch.command_line.job_size import job_name, node_range
from everstep.launch.command_line.launch_parser import launch_parser
from everstep.launch.command_line.option_parser import Line, UsageError
from everstep.launch.command_line.program import program
from everstep.launch.command_line.rank_streams import (
    StreamPlan,
    checked_folder,
    everything_kept,
    stream_plan,
)
from everstep.launch.command_line.standby_options import standby_options
from everstep.launch.command_line.torchrun_options import VARIABLE_PREFIX, torchrun_notes
from everstep.launch.keep_options import KeepError, KeepOptions, keep_options
from everstep.launch.output.progress_patterns import COMMON, PatternError, own_patterns
from everstep.launch.standby.pool import StandbyOptions

# Where the packaged unit puts the agent's socket, and where an agent without root puts it.
_SYSTEM_SOCKET = "/run/everstep-agent/agent.sock"


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
    grace_s: float
    command: tuple[str, ...]
    role: str = "default"
    streams: StreamPlan = field(default_factory=StreamPlan)
    progress: tuple[re.Pattern[str], ...] = COMMON
    keep: KeepOptions = field(default_factory=KeepOptions)
    standby: StandbyOptions = field(default_factory=StandbyOptions)
    # What is worth saying about the command line, once.
    notes: tuple[str, ...] = ()


def parse_options(
    arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> LaunchOptions:
    """Return the options. Raises UsageError; SystemExit for --help."""
    parser = launch_parser()
    parser.take_defaults(environ, VARIABLE_PREFIX)
    line = parser.split(arguments)
    try:
        return _options(parser.values(line), line, environ)
    except (KeepError, PatternError) as error:
        raise UsageError(str(error)) from error


def _options(values: argparse.Namespace, line: Line, environ: Mapping[str, str]) -> LaunchOptions:
    command = program(line, environ, module=values.module, no_python=values.no_python)
    nodes_min, nodes_max = node_range(values.nnodes, environ)
    name = job_name(values.job, values.rdzv_id, line.command, environ, alone=values.standalone)
    grace_s = values.grace if values.shutdown_timeout is None else values.shutdown_timeout
    if values.max_restarts < 0 or not 0 <= grace_s < float("inf"):
        raise UsageError("--max-restarts and --grace must not be below 0")
    options = LaunchOptions(
        job=name,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        processes_per_node=ranks_per_node(values.nproc_per_node, environ),
        reform=values.policy == "reform",
        restarts_max=values.max_restarts,
        token_file=values.token_file,
        socket=values.socket or default_socket(environ),
        grace_s=grace_s,
        command=command,
        role=values.role,
        streams=_streams(values),
        progress=own_patterns(values.progress_pattern),
        keep=keep_options(values, environ),
        standby=standby_options(values),
    )
    return _noted(options, values, environ)


def default_socket(environ: Mapping[str, str] = os.environ) -> str:
    """Return the agent's socket: EVERSTEP_SOCKET, the system's agent, or this user's own."""
    if given := environ.get("EVERSTEP_SOCKET"):
        return given
    own = [_SYSTEM_SOCKET]
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        own.append(f"{runtime}/everstep-agent/agent.sock")
    own.append(os.path.expanduser("~/.local/state/everstep-agent/run/agent.sock"))
    return next((path for path in own if os.path.exists(path)), _SYSTEM_SOCKET)


def _streams(values: argparse.Namespace) -> StreamPlan:
    if values.logs is not None:
        return everything_kept(checked_folder("--logs", values.logs), values.local_ranks_filter)
    folder = None if values.log_dir is None else checked_folder("--log-dir", values.log_dir)
    return stream_plan(folder, values.redirects, values.tee, values.local_ranks_filter)


def _noted(
    options: LaunchOptions, values: argparse.Namespace, environ: Mapping[str, str]
) -> LaunchOptions:
    """Return the options with what is worth saying about them."""
    notes = list(torchrun_notes(values))
    if options.processes_per_node > 1 and "OMP_NUM_THREADS" not in environ:
        notes.append(
            "OMP_NUM_THREADS is 1 in each rank, as with torchrun, so that they do not overload the"
            " node; set it yourself for another number"
        )
    streams = options.streams
    if streams.needs_folder:
        folder = Path(tempfile.mkdtemp(prefix=f"everstep-{options.job}-"))
        streams = replace(streams, folder=folder)
        notes.append(f"the files of --redirects and --tee are in {folder}")
    return replace(options, streams=streams, notes=tuple(notes))
