"""Options of torchrun: those that mean the same here, those that are not needed, and the others."""

import argparse
import textwrap
from collections.abc import Iterator

from everstep.launch.command_line.option_parser import OptionParser, UsageError

# torchrun takes every option from a variable, too: PET_NNODES, PET_NPROC_PER_NODE …
VARIABLE_PREFIX = "PET_"
# Where ranks are, and who is their master, is in the controller's plan.
_NOT_NEEDED = (
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-conf",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--signals-to-handle",
)
# What would be missed in silence, and what to do instead.
_REFUSED = {
    "--numa-binding": "start numactl: --no-python numactl --cpunodebind … python train.py",
    "--logs-specs": "name a folder with --log-dir",
    "--duplicate-stdout-filters": "keep the output in files with --tee 3, and grep there",
    "--duplicate-stderr-filters": "keep the output in files with --tee 3, and grep there",
    "--virtual-local-rank": "let the script choose its device by LOCAL_RANK",
}


def add_torchrun_options(parser: OptionParser) -> None:
    """Let a parser know them."""
    add = parser.add_argument_group(
        "as torchrun", "These mean what they mean there; PET_… variables stand for them as well."
    ).add_argument
    add("-m", "--module", action="store_true", help="what to start is a module, not a script")
    add("--no-python", action="store_true", help="what to start is a program, not a script")
    add("--run-path", action="store_true", help="the same as without it: a script is executed")
    add("--standalone", action="store_true", help="a job of this node alone")
    add("--rdzv-id", metavar="NAME", help="the job's name, where --job does not give it")
    add("--role", default="default", metavar="NAME", help="what the ranks find in ROLE_NAME")
    add(
        "-r",
        "--redirects",
        default="0",
        metavar="0-3",
        help="streams that go to files instead of the terminal: 1 stdout, 2 stderr, 3 both; or of"
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
        help="show only these local ranks on the terminal; files are not concerned",
    )
    add("--shutdown-timeout", type=float, metavar="SECONDS", help="the same as --grace")
    _add_others(parser)


def _add_others(parser: OptionParser) -> None:
    others = parser.add_argument_group(
        "of torchrun, and not needed",
        "Accepted, and without effect:\n  "
        + textwrap.fill(", ".join(_NOT_NEEDED), 90, subsequent_indent="  "),
    )
    for name in _NOT_NEEDED:
        others.add_argument(name, help=argparse.SUPPRESS)
    for name in _REFUSED:
        nargs = 0 if name == "--virtual-local-rank" else None
        others.add_argument(name, action=_Refuse, nargs=nargs, help=argparse.SUPPRESS)


class _Refuse(argparse.Action):
    """An option that is known, and that nothing here does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Raise UsageError."""
        name = self.option_strings[0]
        raise UsageError(f"{name} is torchrun's and not known here; {_REFUSED[name]}")


def torchrun_notes(values: argparse.Namespace) -> Iterator[str]:
    """Yield what is worth saying about options that change nothing, once."""
    given = [name for name in _NOT_NEEDED if _value(values, name) is not None]
    if given:
        verb = "is" if len(given) == 1 else "are"
        yield (
            f"{', '.join(given)} {verb} not needed: who takes part, with which rank, and where"
            " they meet is in the controller's plan"
        )


def _value(values: argparse.Namespace, name: str) -> object:
    found: object = getattr(values, name[2:].replace("-", "_"))
    return found
