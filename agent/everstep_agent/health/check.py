"""``everstep-agent check``: says whether this node is fit for work, within a deadline."""

import argparse
import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.health.groups import GROUPS, problems_of
from everstep_agent.health.rendering import as_json, as_nagios, as_text, unknown
from everstep_agent.health.report import HealthReport, Status, prolog_code
from everstep_agent.health.socket import SOCKET_NAME, ask_agent
from everstep_common.config import ConfigError, load

# How long a running agent may take to answer from its book; after that the command reads the node
# itself.
_AGENT_S = 1.0
# The part of the deadline that is kept for ending the NVML process and printing the answer.
_RESERVE_S = 1.5
_SYSTEM_SOCKET = Path("/run/everstep-agent") / SOCKET_NAME
_DEFAULT_CONFIG = Path("/etc/everstep/agent.toml")

_EPILOG = f"""\
groups: {", ".join(GROUPS)}

exit code:
  0  OK        nothing is wrong, or nothing that fails with --fail-on critical
  1  WARNING   a degraded finding, or one whose mode is observe
  2  CRITICAL  a fatal finding: ranks must not run here
  3  UNKNOWN   a probe failed or hangs, the deadline passed, or the command line is wrong

With --fail-on critical, for prologs, whose failure drains the node and knows no budget, only a
fatal finding whose mode is enforce fails (exit code 2). Everything else prints its line and passes:
other findings, what could not be read, and what the fleet's budget does not allow to leave. With
--strict what could not be read fails as well (exit code 3).

The command asks the agent that runs here, which knows rates and history, and reads nothing itself.
Without one it reads the probes, as often as the conditions need; what has to be watched for longer
is listed as not judged. Root is not needed; a source that cannot be read with your rights is listed
as blind and does not change the status.

examples:
  everstep-agent check                                   everything, for people
  everstep-agent check --only gpu,ib --json              a part, for programs
  everstep-agent check --nagios --deadline 10            a line for Nagios, Icinga, NRPE

  slurm.conf, Prolog= (a failing prolog drains the node and requeues the job):
    /opt/everstep/bin/everstep-agent check --fail-on critical --deadline 10 --nagios

  slurm.conf, HealthCheckProgram= (Slurm ignores the exit code: the script drains):
    line=$(/opt/everstep/bin/everstep-agent check --fail-on critical --nagios) ||
      /usr/bin/scontrol update nodename="$(/bin/hostname -s)" state=drain reason="$line"
"""


@dataclass(frozen=True, slots=True)
class _Options:
    groups: tuple[str, ...]
    deadline_s: float
    render: Callable[[HealthReport], str]
    fail_on: str
    strict: bool
    own: bool
    controllers: bool


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code. Ends the process itself when something hangs."""
    given = _parser().parse_args(words)
    options = _Options(
        groups=tuple(dict.fromkeys(group for group in given.only.split(",") if group)),
        deadline_s=given.deadline,
        render=as_json if given.json else as_nagios if given.nagios else as_text,
        fail_on=given.fail_on,
        strict=given.strict,
        own=given.own_probes,
        controllers=given.controllers,
    )
    backstop = threading.Timer(options.deadline_s, _give_up, (options,))
    backstop.daemon = True
    backstop.start()
    # The report is the whole answer: log lines of the agent's parts would confuse its readers.
    logging.disable(logging.CRITICAL)
    try:
        config, notes = _config(given.config)
        report = asyncio.run(_with_controllers(config, options, notes))
    except ConfigError as error:
        # On both outputs: a program reads standard output, an operator the log of its caller.
        _usage("; ".join(error.problems))
        report = unknown(socket.gethostname(), f"wrong configuration: {error.problems[0]}")
    except Exception as error:  # noqa: BLE001 - a check that fails tells nothing of the node
        report = unknown(socket.gethostname(), f"{type(error).__name__}: {error}")
    return _end(report, options)


async def _with_controllers(
    config: AgentConfig, options: _Options, notes: tuple[str, ...]
) -> HealthReport:
    """Return the report, with what the controllers say where they are to be asked."""
    if not options.controllers:
        return await _report(config, options, notes)
    # Imported only here: a check in a prolog imports no gRPC.
    from everstep_agent.health.controllers import controller_notes

    asking = asyncio.create_task(controller_notes(config, options.deadline_s / 3))
    report = await _report(config, options, notes)
    return replace(report, notes=(*report.notes, *await asking))


async def _report(config: AgentConfig, options: _Options, notes: tuple[str, ...]) -> HealthReport:
    began = asyncio.get_running_loop().time()
    patience_s = min(_AGENT_S, options.deadline_s / 2)
    if not options.own:
        paths = (config.jobs.runtime_folder / SOCKET_NAME, _SYSTEM_SOCKET)
        try:
            return ask_agent(paths, options.groups, patience_s)
        except FileNotFoundError:
            notes += ("no agent runs here",)
        except (OSError, ValueError) as error:
            notes += (f"no agent could be asked: {error}",)
    if "inventory" in options.groups and config.inventory_file is None:
        notes += ("no inventory is expected; 'everstep-agent inventory --help' tells how to",)
    # Imported only here: no probes are needed when a running agent has answered.
    from everstep_agent.health.one_shot_check import check_without_agent

    spent_s = asyncio.get_running_loop().time() - began
    left_s = options.deadline_s - spent_s - min(_RESERVE_S, options.deadline_s / 4)
    return await check_without_agent(config, options.groups, left_s, notes)


def _end(report: HealthReport, options: _Options) -> NoReturn:
    """Print, and leave without waiting for anything that hangs in a driver or on a disk."""
    in_prolog = options.fail_on == "critical"
    code = prolog_code(report, options.strict) if in_prolog else int(report.status)
    _write(options.render(replace(report, notes=(*report.notes, *_passing(report, code)))))
    os._exit(code)


def _passing(report: HealthReport, code: int) -> tuple[str, ...]:
    """Return why a node passes that must not get a job: somebody has to look at it."""
    if code or not report.failing or not report.kept_by_fleet:
        return ()
    return (f"PASSES, tell a human: {report.kept_by_fleet}",)


def _give_up(options: _Options) -> None:
    """End a command whose main thread is stuck."""
    why = f"the deadline of {options.deadline_s:g} s has passed"
    _end(unknown(socket.gethostname(), why), options)


def _write(text: str) -> None:
    # Not through sys.stdout: a thread that is stuck may hold its lock.
    data = text.encode("utf-8", errors="replace")
    while data:
        try:
            data = data[os.write(1, data) :]
        except OSError:
            return


def _config(given: Path | None) -> tuple[AgentConfig, tuple[str, ...]]:
    """Return the configuration, and a note when the system's own may not be read by this user."""
    if given is not None:
        return load(AgentConfig, given), ()
    if not _DEFAULT_CONFIG.exists():
        return load(AgentConfig, None), ()
    if not os.access(_DEFAULT_CONFIG, os.R_OK):
        note = f"{_DEFAULT_CONFIG} cannot be read by this user; the defaults hold"
        return load(AgentConfig, None), (note,)
    return load(AgentConfig, _DEFAULT_CONFIG), ()


class _Parser(argparse.ArgumentParser):
    """Ends a wrong command line with 3: with 2 a monitoring system would call the node critical."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_usage(message))


def _usage(message: str) -> int:
    print(f"everstep-agent check: {message}; --help tells more", file=sys.stderr)
    return int(Status.UNKNOWN)


def _groups(text: str) -> str:
    if problems := problems_of(group for group in text.split(",") if group):
        raise argparse.ArgumentTypeError("; ".join(problems))
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1.0 <= seconds <= 3600.0:
        raise argparse.ArgumentTypeError(f"expected 1 to 3600 seconds, got {text!r}")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="everstep-agent check",
        description="Says whether this node is fit for work.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", type=_groups, default="", metavar="GROUP[,…]", help="check only these groups"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="the full report; later versions only add fields"
    )
    form.add_argument("--nagios", action="store_true", help="one line with performance data")
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="answer within SECONDS, whatever hangs (default 30)",
    )
    parser.add_argument(
        "--fail-on",
        choices=("warning", "critical"),
        default="warning",
        help="critical: only what is fatal without a doubt fails; for prologs",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="with --fail-on critical: fail as well where something could not be read",
    )
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="ask each controller of the configuration, too, and say which one is active; the exit "
        "code does not depend on it. Not for prologs: a thousand of them are a crowd",
    )
    parser.add_argument(
        "--own-probes",
        action="store_true",
        help="read the probes here instead of asking the running agent",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="as for the agent itself")
    return parser
