"""Launch options: the command line of ``everstep run`` as one value, checked before any start."""

import argparse
import os
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep.launch.command_line.devices import ranks_per_node
from everstep.launch.command_line.grace import GRACE_MAX_S
from everstep.launch.command_line.job_size import (
    is_named,
    job_name,
    node_range,
    program_words,
    queue_and_account,
    replica_nodes,
)
from everstep.launch.command_line.launch_parser import launch_parser
from everstep.launch.command_line.option_parser import Line, UsageError
from everstep.launch.command_line.program import program
from everstep.launch.command_line.rank_streams import (
    StreamPlan,
    checked_folder,
    everything_kept,
    stream_plan,
)
from everstep.launch.command_line.snapshot_options import KeepError, KeepOptions, keep_options
from everstep.launch.command_line.standby_options import standby_options
from everstep.launch.command_line.torchrun_options import (
    VARIABLE_PREFIX,
    ending_signals,
    refuse_unknown,
    torchrun_notes,
)
from everstep.launch.inspection.sources.ras_client import RasUse
from everstep.launch.output.progress_patterns import COMMON, PatternError, own_patterns
from everstep.launch.standby.pool import StandbyOptions

# Where the packaged unit puts the agent's socket, and where an agent without root puts it.
_SYSTEM_SOCKET = "/run/everstep-agent/agent.sock"
_SHUTDOWN_TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
# As many as the controller can count: for whoever wants no limit.
_RESTARTS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options of ``everstep run``, as the user gave them."""

    job: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int
    reform: bool
    restarts_max: int
    token_file: Path | None
    socket: str
    # From a signal to SIGKILL; None: what is known of whoever sends it.
    grace_s: float | None
    command: tuple[str, ...]
    # How long an agent that is not there yet is waited for, where one is to be expected.
    agent_wait_s: float = 0.0
    # --standalone, and nobody named an agent: where none answers, one may be started.
    may_start_services: bool = False
    # The log of an agent that was started for this job, and ends with it; "": it runs for the node.
    agent_log: str = ""
    # So many nodes hold one copy of the model together.
    replica_nodes: int = 1
    # What is started, in words that differ where the programs do.
    program: str = ""
    # Whose time it is; "": nobody has said.
    queue: str = ""
    account: str = ""
    # The signals after which the job goes on without this node.
    leaves_on: tuple[signal.Signals, ...] = ()
    # The job ends by them, and its ranks get that signal; by the usual others they get SIGTERM.
    ends_on: tuple[signal.Signals, ...] = ()
    # Each rank has the local rank 0, and sees its own GPU only.
    virtual_local_rank: bool = False
    role: str = "default"
    streams: StreamPlan = field(default_factory=StreamPlan)
    progress: tuple[re.Pattern[str], ...] = COMMON
    keep: KeepOptions = field(default_factory=KeepOptions)
    standby: StandbyOptions = field(default_factory=StandbyOptions)
    # Whether NCCL RAS is asked when the job is stopped because it hung.
    ras: RasUse = RasUse.AUTO
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
    refuse_unknown(values)
    no_python = values.no_python and not values.run_path
    command = program(line, environ, module=values.module, no_python=no_python)
    nodes_min, nodes_max = node_range(values.nnodes, environ, alone=values.standalone)
    name = job_name(values.job, values.rdzv_id, line.command, environ, alone=values.standalone)
    if not 0 <= values.max_restarts <= _RESTARTS_MAX:
        raise UsageError(f"--max-restarts must not be below 0, nor above {_RESTARTS_MAX}")
    ranks = ranks_per_node(values.nproc_per_node, environ)
    queue, account = queue_and_account(values.queue, values.account, environ)
    options = LaunchOptions(
        job=name,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        replica_nodes=replica_nodes(values.nodes_per_replica, (nodes_min, nodes_max)),
        program=program_words(
            line.command,
            named=values.standalone or is_named(values.job, values.rdzv_id, environ),
        ),
        queue=queue,
        account=account,
        processes_per_node=ranks,
        reform=values.policy == "reform",
        restarts_max=values.max_restarts,
        token_file=values.token_file,
        socket=values.socket or default_socket(environ),
        may_start_services=values.standalone and not _names_agent(values, environ),
        grace_s=_grace_s(values, environ),
        agent_wait_s=_agent_wait_s(values.agent_wait),
        command=command,
        leaves_on=(signal.SIGTERM,) if values.on_sigterm == "leave" else (),
        ends_on=ending_signals(values.signals_to_handle),
        virtual_local_rank=_virtual(values.virtual_local_rank, ranks, environ),
        role=values.role,
        streams=_streams(values),
        progress=own_patterns(values.progress_pattern),
        ras=RasUse(values.nccl_ras),
        keep=keep_options(values, environ, name),
        standby=standby_options(values),
    )
    return _noted(options, values, environ)


def default_socket(environ: Mapping[str, str] = os.environ, system: str = _SYSTEM_SOCKET) -> str:
    """Return the agent's socket: EVERSTEP_SOCKET, the system's agent, or this user's own."""
    if given := environ.get("EVERSTEP_SOCKET"):
        return given
    own = [system]
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        own.append(f"{runtime}/everstep-agent/agent.sock")
    own.append(os.path.expanduser("~/.local/state/everstep-agent/run/agent.sock"))
    there = [path for path in own if os.path.exists(path)]
    # An agent that is to come, or that has gone for a moment, has its folder.
    there += [path for path in own if os.path.isdir(os.path.dirname(path))]
    return next(iter(there), system)


def _names_agent(values: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    return bool(values.socket or environ.get("EVERSTEP_SOCKET"))


def _agent_wait_s(given: float) -> float:
    if not 0 <= given < float("inf"):
        raise UsageError(f"--agent-wait is {given:g} and must not be below 0, nor without end")
    return given


def _grace_s(values: argparse.Namespace, environ: Mapping[str, str]) -> float | None:
    """Return how long an end may take: by torchrun's option or variable, or --grace."""
    name, grace_s = "--grace", None if values.grace is None else float(values.grace)
    if values.shutdown_timeout is not None:
        name, grace_s = "--shutdown-timeout", values.shutdown_timeout
    elif given := environ.get(_SHUTDOWN_TIMEOUT):
        try:
            name, grace_s = _SHUTDOWN_TIMEOUT, float(given)
        except ValueError as error:
            raise UsageError(f"{_SHUTDOWN_TIMEOUT}={given}: expected seconds") from error
    if grace_s is not None and not 0 <= grace_s <= GRACE_MAX_S:
        raise UsageError(f"{name} is {grace_s:g}: expected 0 to {GRACE_MAX_S:.0f} s, a week")
    return grace_s


def _virtual(wanted: bool, ranks: int, environ: Mapping[str, str]) -> bool:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted and visible and visible.count(",") + 1 < ranks:
        raise UsageError(
            f"--virtual-local-rank: CUDA_VISIBLE_DEVICES={visible} has not a GPU for each of"
            f" {ranks} ranks; name more of them, or start fewer ranks"
        )
    return wanted


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
        streams = replace(streams, folder=folder, made=True)
        notes.append(f"the files of --redirects and --tee are in {folder}")
    return replace(options, streams=streams, notes=tuple(notes))
