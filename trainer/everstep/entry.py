"""Entry point of `everstep`: runs the commands that are installed, says how to get the others."""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec

from everstep_common.extras import install_line
from everstep_common.start import hear_interrupts
from everstep_common.version import VERSION

_GROUP = "everstep.commands"
_EXIT_USAGE = 2
# Commands whose program is not a package's main.
_COMMANDS_IN_SOURCE = {"slow": "everstep_cli.slow.command"}
# As shells count: 128 + SIGINT.
_EXIT_INTERRUPTED = 130
HELP = """\
everstep keeps a training job stepping through the failures of a GPU cluster.

try it on this machine (needs everstep[all]):
  everstep demo             a job that survives three failures, in about a minute
  everstep run --standalone train.py …     your own script, in place of torchrun --standalone

on every node of a job:
  everstep run --job NAME --nnodes 3:4 --nproc-per-node 8 train.py …
                            start this node's ranks, as torchrun does; replace those that fail

when a job hangs, anywhere:
  everstep hang FOLDER      which ranks hold it back, from the Flight Recorder dumps in FOLDER
  everstep hang --job NAME  what each rank of a job on this node is doing now, and who holds it back

when a job is slow, anywhere (needs everstep[tables]):
  everstep slow TABLE       which workers make the others wait, from their seconds in each step

inspect (needs everstep[cli]; EVERSTEP_CONTROLLER=host:port):
  everstep nodes            all nodes: health, claims, findings
  everstep node NAME        one node: hardware, findings, ranks
  everstep why NAME         why a node or job is in its state
  everstep findings         open findings, worst first
  everstep incidents        faults with one cause, newest first
  everstep events --follow  what happened and what was decided
  everstep jobs             all jobs and the step they have reached
  everstep job NAME         one job: generations, ranks, what is planned
  everstep job NAME slow    who of its ranks makes the others wait, or that nobody does
  everstep logs JOB         what its ranks wrote lately; --rank N, --follow
  everstep snapshots JOB    its steps, their copies, and which would be restored
  everstep ettr JOB         where a job's time went

act (most take --reason TEXT, which is logged):
  everstep drain NODE       jobs leave it at a step boundary
  everstep maintenance add NODE --from "in 2h" --for 1h       also: list, cancel ID
  everstep isolate NODE     jobs leave it at once             everstep release NODE
  everstep check NODE       test it beside another node, or show what its newest test found
  everstep pause            automation stops                  everstep resume
  everstep inject NODE xid:79                                 inject a fault, for drills
  everstep job NAME restart --at-step N   restart with the script on disk; --cancel
  everstep job NAME stop    end it at a step boundary; --cancel
  everstep job NAME forget  free the snapshots of a job that has ended

  everstep version          the versions of this command and of the controller
  everstep completion bash  shell completion

daemons: everstep-agent (extra 'agent'), everstep-controller (extra 'controller')
'everstep help' lists every command, 'everstep COMMAND --help' has details of one."""


def main() -> int:
    """Run ``everstep``; return the exit code."""
    _see_how_children_end()
    try:
        return _command(sys.argv[1:])
    except KeyboardInterrupt:  # before the command has its own way with it
        return _EXIT_INTERRUPTED


def _command(arguments: list[str]) -> int:
    if "_EVERSTEP_COMPLETE" in os.environ:  # set by the shell completion of the CLI
        return _dispatch("cli", "cli", "shell completion")
    if arguments[:1] == ["run"]:
        from everstep.launch.main import main as run  # the other commands start faster without it

        hear_interrupts()
        return run(arguments[1:])
    if arguments[:1] == ["hang"]:
        return _hang(arguments[1:])
    if arguments[:1] == ["slow"]:
        return _dispatch("slow", "tables", "everstep slow")
    if arguments == ["help"] and find_spec("click") is not None:
        sys.argv[1:] = ["--help"]
        return _dispatch("cli", "cli", "everstep help")
    if arguments[:1] in ([], ["--help"], ["-h"], ["help"]):
        return _show(HELP)
    if arguments == ["--version"]:
        return _show(f"everstep {VERSION}")
    # The demo starts agents and a controller, so it needs their packages as well.
    extra = "all" if arguments[0] == "demo" else "cli"
    return _dispatch("cli", extra, f"everstep {arguments[0]}")


def _hang(arguments: list[str]) -> int:
    if any(word.startswith(("--job", "--pids")) for word in arguments):
        from everstep.hang_command import main as look

        hear_interrupts()
        return look(arguments)
    from everstep_common.hangs.command import main as judge

    hear_interrupts()
    return judge(arguments)


def agent() -> int:
    """Run ``everstep-agent``; return the exit code."""
    return _daemon("agent")


def controller() -> int:
    """Run ``everstep-controller``; return the exit code."""
    return _daemon("controller")


def _see_how_children_end() -> None:
    # Where a parent has it ignored, the kernel keeps no exit codes: a killed rank, and a driver's
    # program that failed, would look as if they had ended well (waitpid(2), ECHILD).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _daemon(name: str) -> int:
    _see_how_children_end()
    if sys.argv[1:] == ["--version"]:
        return _show(f"everstep-{name} {VERSION}")
    try:
        return _dispatch(name, name, f"everstep-{name}")
    except KeyboardInterrupt:  # before the daemon handles the signal
        return _EXIT_INTERRUPTED


def _dispatch(name: str, extra: str, what: str) -> int:
    try:
        command = _load(name)
        hear_interrupts()
        return command() or 0
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("everstep"):
            raise  # not a missing extra but a broken installation: the traceback tells where
        print(
            f"{what!r} needs more than the base install (no module {error.name!r});"
            f" run: {install_line(extra)}",
            file=sys.stderr,
        )
        return _EXIT_USAGE


def _load(name: str) -> Callable[[], int | None]:
    for found in entry_points(group=_GROUP, name=name):
        command: Callable[[], int | None] = found.load()
        return command
    # A source checkout on the path, without an installation.
    module = _COMMANDS_IN_SOURCE.get(name, f"everstep_{name}.main")
    fallback: Callable[[], int | None] = importlib.import_module(module).main
    return fallback


def _show(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # "everstep --help | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
