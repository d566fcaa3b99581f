"""Job settings under torchrun: read from its rendezvous configuration and its command line."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from torch.distributed import run
from torch.distributed.elastic.rendezvous import RendezvousParameters

from everstep.launch.command_line.job_size import job_name, queue_and_account
from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.options import default_socket
from everstep.launch.command_line.snapshot_options import (
    KeepError,
    KeepOptions,
    add_keep_options,
    keep_options,
)
from everstep.launch.job_token import TokenError, job_token

# As `everstep run` has it, where torchrun's own is not known.
_RESTARTS_MAX = 10
_AGENT_WAIT_S = 60.0
_OWN = ("processes", "max_restarts", "token_file", "policy", "agent_wait", "queue", "account")
# What torchrun itself adds to the configuration of a rendezvous.
_TORCHRUNS = ("timeout", "rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchrunSettings:
    """This node's part of a job under torchrun."""

    job: str
    socket: str
    token: str
    nodes_min: int
    nodes_max: int
    processes: int
    restarts_max: int
    reform: bool = False
    # How long an agent that is not there yet is waited for, where one is to be expected.
    agent_wait_s: float = 0.0
    # Whose time it is; "": nobody has said.
    queue: str = ""
    account: str = ""
    keep: KeepOptions = field(default_factory=KeepOptions)


def settings(
    given: RendezvousParameters,
    command_line: Sequence[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> TorchrunSettings:
    """Return them. Raises ValueError, one sentence with the next step.

    torchrun does not tell a rendezvous how many processes it will start; its command line does.
    """
    line = torchrun_line() if command_line is None else command_line
    asked = run.get_args_parser().parse_args(list(line)) if line else None
    processes = given.get_as_int("processes")
    if processes is None and asked is not None:
        processes = run.determine_local_world_size(asked.nproc_per_node)
    if processes is None:
        raise ValueError(
            "the everstep rendezvous must know how many processes this node starts; say it with"
            " --rdzv-conf processes=N (rdzv_configs={'processes': N} of LaunchConfig)"
        )
    restarts = given.get_as_int("max_restarts", asked.max_restarts if asked else _RESTARTS_MAX)
    token_file = given.get("token_file")
    queue, account = queue_and_account(given.get("queue"), given.get("account"), environ)
    try:
        job = _job(given.run_id, environ)
        return TorchrunSettings(
            job=job,
            socket=given.endpoint.strip() or default_socket(environ),
            token=job_token(job, Path(token_file) if token_file else None, environ),
            nodes_min=given.min_nodes,
            nodes_max=given.max_nodes,
            processes=processes,
            restarts_max=_RESTARTS_MAX if restarts is None else restarts,
            reform=given.get("policy") == "reform",
            agent_wait_s=float(given.get("agent_wait", _AGENT_WAIT_S)),
            queue=queue,
            account=account,
            keep=_keep(given.config, environ, job),
        )
    except (UsageError, TokenError, KeepError) as error:
        raise ValueError(str(error)) from error


def torchrun_line() -> Sequence[str]:
    """Return torchrun's command line; nothing in a program that uses it as a library."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    by_name = os.path.basename(sys.argv[0]).startswith("torchrun")
    as_module = getattr(spec, "name", "") == run.__name__
    return sys.argv[1:] if by_name or as_module else ()


def _job(run_id: str, environ: Mapping[str, str]) -> str:
    if run_id in ("", "none") and "SLURM_JOB_ID" not in environ:
        raise ValueError("torchrun has not named the job; give it a name with --rdzv-id NAME")
    return job_name(None, run_id, (), environ)


def _keep(config: Mapping[str, object], environ: Mapping[str, str], job: str) -> KeepOptions:
    """Return what is kept; ``--rdzv-conf persist=DIR`` is ``everstep run --persist DIR``."""
    parser = _Parser(prog="--rdzv-conf", add_help=False)
    add_keep_options(parser)
    words: list[str] = []
    for name, value in config.items():
        if name in _OWN or name in _TORCHRUNS:
            continue
        option = "--" + name.replace("_", "-")
        words += [option] if name in ("fresh", "continue") else [f"{option}={value}"]
    return keep_options(parser.parse_args(words), environ, job)


class _Parser(argparse.ArgumentParser):
    """Parser that raises errors instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise KeepError(f"--rdzv-conf: {message}")
