"""Options of torchrun: those that ``everstep run`` takes, those without effect, and the refused."""

import argparse
import signal
import textwrap
from collections.abc import Iterator

from everstep.launch.command_line.option_parser import OptionParser, UsageError

# torchrun takes every option from a variable, too: PET_NNODES, PET_NPROC_PER_NODE …
VARIABLE_PREFIX = "PET_"
# Options on the place of ranks and on their master, which come from the controller's plan here.
_PLANNED = (
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-conf",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
)
_NO_EFFECT = {
    "--monitor-interval": "the end of a rank is noticed at once",
    "--start-method": "each rank is a new process, or a standby that waits for it",
    "--event-log-handler": "'everstep events' and 'everstep job NAME' show what happens to the job",
}
# Options that would be missed in silence, with what to do instead.
_REFUSED = {
    "--numa-binding": "start numactl: --no-python numactl --cpunodebind … python train.py",
    "--logs-specs": "name a folder with --log-dir",
    "--duplicate-stdout-filters": "keep the output in files with --tee 3, and grep there",
    "--duplicate-stderr-filters": "keep the output in files with --tee 3, and grep there",
}
# All of torchrun's, as of torch 2.13.
OPTIONS = frozenset(
    {
        *_PLANNED,
        *_NO_EFFECT,
        *_REFUSED,
        "--nnodes",
        "--nproc-per-node",
        "--rdzv-id",
        "--standalone",
        "--max-restarts",
        "--role",
        "--module",
        "--no-python",
        "--run-path",
        "--log-dir",
        "--redirects",
        "--tee",
        "--local-ranks-filter",
        "--signals-to-handle",
        "--shutdown-timeout",
        "--virtual-local-rank",
    }
)
_NEVER = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


def add_torchrun_options(parser: OptionParser) -> None:
    """Let a parser know them."""
    add = parser.add_argument_group(
        "as torchrun", "Same meaning as in torchrun; PET_… variables set them as well."
    ).add_argument
    add("-m", "--module", action="store_true", help="start a module, not a script")
    add("--no-python", action="store_true", help="start a program, not a Python script")
    add("--run-path", action="store_true", help="without effect: a script is always executed")
    add(
        "--standalone",
        action="store_true",
        help="a job of this node alone; where no agent runs, a controller and an agent are started"
        " for it, and stopped at its end",
    )
    add("--rdzv-id", metavar="NAME", help="the job's name, where --job does not give it")
    add("--role", default="default", metavar="NAME", help="value of ROLE_NAME for the ranks")
    add(
        "-r",
        "--redirects",
        default="0",
        metavar="0-3",
        help="streams that go to files instead of the terminal: 1 stdout, 2 stderr, 3 both; or for"
        " single local ranks, as in 0:3,1:2",
    )
    add(
        "-t",
        "--tee",
        default="0",
        metavar="0-3",
        help="streams that go to files and to the terminal, chosen as with --redirects",
    )
    add(
        "--local-ranks-filter",
        default="",
        metavar="0,1",
        help="show only these local ranks on the terminal; files have all",
    )
    add(
        "--signals-to-handle",
        metavar="A,B",
        help="further signals that end the job (SIGTERM, SIGINT, SIGQUIT and, but for a terminal"
        " that is gone, SIGHUP do, unless they were ignored as it began, as a shell has SIGINT be"
        " for what a script runs with &);"
        " its ranks then get that signal instead of SIGTERM. SIGUSR1 and SIGUSR2 are otherwise"
        " passed on to the ranks that handle them",
    )
    add(
        "--virtual-local-rank",
        action="store_true",
        help="each rank has LOCAL_RANK=0 and sees its own GPU only (CUDA_VISIBLE_DEVICES)",
    )
    add(
        "--shutdown-timeout",
        type=float,
        metavar="SECONDS",
        help="the same as --grace (also TORCH_ELASTIC_SHUTDOWN_TIMEOUT)",
    )
    _add_others(parser)


def _add_others(parser: OptionParser) -> None:
    idle = [*_PLANNED, *_NO_EFFECT]
    others = parser.add_argument_group(
        "torchrun options without effect",
        "Accepted, but not needed:\n  "
        + textwrap.fill(", ".join(idle), 76, subsequent_indent="  "),
    )
    for name in (*idle, *_REFUSED):
        others.add_argument(name, help=argparse.SUPPRESS)


def refuse_unknown(values: argparse.Namespace) -> None:
    """Raise UsageError for an option, given or by a variable, that nothing here does."""
    for name, instead in _REFUSED.items():
        if _value(values, name):
            raise UsageError(f"{name} is torchrun's and not known here; {instead}")


def ending_signals(text: str | None) -> tuple[signal.Signals, ...]:
    """Return the signals that end the job and that its ranks get then. Raises UsageError."""
    found: list[signal.Signals] = []
    for name in (part.strip() for part in (text or "").split(",")):
        number = signal.Signals.__members__.get(name)
        if number in _NEVER or (name and number is None):
            raise UsageError(
                f"--signals-to-handle: {name!r} cannot be handled; name signals such as SIGUSR1"
            )
        if number is not None and number is not signal.SIGTERM:
            found.append(number)
    return tuple(found)


def torchrun_notes(values: argparse.Namespace) -> Iterator[str]:
    """Yield what is worth saying about options that change nothing, once."""
    given = [name for name in _PLANNED if _value(values, name) is not None]
    if given:
        verb = "is" if len(given) == 1 else "are"
        yield (
            f"{', '.join(given)} {verb} not needed: who takes part, with which rank, and where"
            " they meet is in the controller's plan"
        )
    for name, why in _NO_EFFECT.items():
        if _value(values, name) is not None:
            yield f"{name} has no effect: {why}"


def _value(values: argparse.Namespace, name: str) -> object:
    found: object = getattr(values, name[2:].replace("-", "_"))
    return found
