"""Entry point of everstep-controller: arguments, the journal's lock, and a run until a signal."""

import argparse
import asyncio
import gc
import getpass
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from everstep_common.config import EX_CONFIG, ConfigError, load
from everstep_common.logs import configure_logging
from everstep_common.systemd import notify, watchdog_interval_s
from everstep_common.version import VERSION
from everstep_controller import backup, replay
from everstep_controller.api.server import ListenError
from everstep_controller.assembly.journal_backends import journal_at
from everstep_controller.assembly.standby import open_standby, told_of
from everstep_controller.config.controller_config import STANDBY, ControllerConfig
from everstep_controller.core.dispatch.core import Core
from everstep_controller.journal.address import is_url
from everstep_controller.journal.codec import UnreadableError
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.journal.port import (
    DamagedJournalError,
    JournalAccessError,
    JournalCandidate,
    JournalLockedError,
    JournalLostError,
    JournalRefusedError,
)
from everstep_controller.judging.judges import JUDGES
from everstep_controller.service import Controller, Options
from everstep_controller.standby.standby import Served
from everstep_proto.local.address import socket_path

logger = logging.getLogger("everstep_controller")
# Libraries that log each thing that they do: a run, a request.
_TALKATIVE = ("apscheduler", "httpx2", "httpcore2")

_DEFAULT_CONFIG = Path("/etc/everstep/controller.toml")
# Objects made and not dropped between two passes over the young ones: more than the plan of a job
# of 100,000 ranks makes.
_YOUNG_OBJECTS_MAX = 400_000
# How long a start that shall stop may take yet: longer than a write to a database that answers.
_START_STOPS_S = 15.0
# Why it does not start: errors that say what happened and what to do.
_TOLD_AS_THEY_ARE = (
    JournalLockedError,
    JournalLostError,
    JournalRefusedError,
    ListenError,
    JournalFull,
    ConfigError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller, or one of its commands; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and (command := _commands().get(given[0])):
        return command(given[1:])
    recovering = given[:1] == ["recover"]
    parser = _parser()
    options, unknown = parser.parse_known_args(given[1:] if recovering else given)
    if unknown:
        parser.error(f"{' '.join(unknown)}: unknown here; a command comes first, as shown above")
    path = _config_path(options.config)
    config = _configured(path)
    if config is None:
        return EX_CONFIG
    configure_logging(config.log_level, config.log_style)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.WARNING)
    recover_by = _operator() if recovering else ""
    return _serve(config, Options(Core, recover_by, path, JUDGES))


def _commands() -> Mapping[str, Callable[[Sequence[str]], int]]:
    return {
        "replay": _replay,
        "backup": _back_up,
        "export": _export,
        "import": _import,
        "init": _initialise,
        "kubernetes": _print_rbac,
    }


def _initialise(arguments: Sequence[str]) -> int:
    # Its libraries take 0.3 s to import, which no other start need wait for.
    from everstep_controller.initialisation import main as initialise

    return initialise(arguments)


def _configured(path: Path | None) -> ControllerConfig | None:
    """Return the configuration; None, and its mistakes are printed, where it has some."""
    try:
        return load(ControllerConfig, path)
    except ConfigError as error:
        for problem in error.problems:
            print(f"everstep-controller: {problem}", file=sys.stderr)
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-controller",
        usage="everstep-controller [recover] [--config FILE]\n"
        "       everstep-controller init [--name NAME] [--operator NAME] [--config FILE]\n"
        "       everstep-controller backup FILE [--config FILE]\n"
        "       everstep-controller export FILE [--config FILE]\n"
        "       everstep-controller import FILE [--config FILE]\n"
        "       everstep-controller replay [JOURNAL] [--config FILE]\n"
        "       everstep-controller kubernetes rbac [--namespace NAME|--user NAME] [--config FILE]",
        description="Judges, isolates, recovers and accounts for a fleet of nodes.",
        epilog="everstep-controller init: make a cluster's authority and first certificates. "
        "everstep-controller backup FILE: copy the journal, also of a controller that runs. "
        "everstep-controller export FILE, import FILE: bring the journal of one that is stopped "
        "from PostgreSQL to a file, and from a file to PostgreSQL. "
        "everstep-controller replay JOURNAL: replay its decisions, and show differences. "
        "everstep-controller recover [--config FILE]: start from an old copy of the journal, "
        "and rebuild from the agents what it does not have. "
        "everstep-controller kubernetes rbac: print the roles that the Kubernetes driver needs.",
    )
    _add_config(parser)
    parser.add_argument("--version", action="version", version=f"everstep-controller {VERSION}")
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"TOML file; {_DEFAULT_CONFIG} if it exists, else defaults",
    )


def _config_path(given: Path | None) -> Path | None:
    return given or (_DEFAULT_CONFIG if _DEFAULT_CONFIG.exists() else None)


def _operator() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"


def _back_up(arguments: Sequence[str]) -> int:
    return _copy(
        "backup",
        "Copy the journal, also while its controller runs, and the cluster file to FILE.cluster; "
        "read the copy again.",
        arguments,
        lambda config, path, file: backup.report(backup.back_up(config, path, file)),
    )


def _export(arguments: Sequence[str]) -> int:
    return _copy(
        "export",
        "Copy the journal of a controller that is stopped to a file, from PostgreSQL or another "
        "file, and the cluster file to FILE.cluster; read the copy again.",
        arguments,
        lambda config, path, file: backup.report(backup.export_journal(config, path, file)),
    )


def _import(arguments: Sequence[str]) -> int:
    def told(config: ControllerConfig, _: Path | None, file: Path) -> Iterator[str]:
        last = backup.import_journal(config, file)
        yield f"{config.journal}: has all of {file}, up to event {last}"
        yield f"start the controller with it, and never again one with {file}"

    return _copy(
        "import",
        "Copy a journal in a file, whose controller is stopped, into the new one that the "
        "configuration names.",
        arguments,
        told,
    )


_Copying = Callable[[ControllerConfig, Path | None, Path], Iterator[str]]


def _copy(command: str, description: str, arguments: Sequence[str], copying: _Copying) -> int:
    """Run a command that copies a journal, and print what it tells."""
    parser = argparse.ArgumentParser(prog=f"everstep-controller {command}", description=description)
    parser.add_argument("file", type=Path, metavar="FILE")
    _add_config(parser)
    options = parser.parse_args(arguments)
    path = _config_path(options.config)
    config = _configured(path)
    if config is None:
        return EX_CONFIG
    try:
        for line in copying(config, path, options.file):
            print(line)
    except backup.BackupError as error:
        print(f"everstep-controller {command}: {error}", file=sys.stderr)
        return 1
    return 0


def _print_rbac(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="everstep-controller kubernetes",
        description="Print what the Kubernetes driver and enrolment need to be allowed, as YAML "
        "for 'kubectl apply -f -': a service account, its roles, and their bindings.",
    )
    parser.add_argument("what", choices=["rbac"])
    subject = parser.add_mutually_exclusive_group()
    subject.add_argument(
        "--namespace",
        type=_namespace,
        default="everstep",
        metavar="NAME",
        help="of the service account; everstep by default",
    )
    subject.add_argument(
        "--user",
        default="",
        metavar="NAME",
        help="of a kubeconfig, instead of a service account: as 'kubectl auth whoami' says",
    )
    _add_config(parser)
    options = parser.parse_args(arguments)
    config = _configured(_config_path(options.config))
    if config is None:
        return EX_CONFIG
    enrolment = config.enrolment.pods
    print(config.drivers.kubernetes.rbac(options.namespace, options.user, enrolment), end="")
    return 0


def _namespace(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a namespace")
    return text


def _replay(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="everstep-controller replay",
        description="Replay a journal and show what this version would decide differently.",
    )
    parser.add_argument(
        "journal", nargs="?", default="", help="a file; without one, what the configuration names"
    )
    _add_config(parser)
    options = parser.parse_args(arguments)
    named = options.journal
    config = _of_journal(named) if named else _configured(_config_path(options.config))
    if config is None:
        return EX_CONFIG
    if not is_url(config.journal) and not Path(config.journal).exists():
        print(f"everstep-controller replay: {config.journal}: no such journal", file=sys.stderr)
        return 1
    try:
        backend = journal_at(config.journal, config.journal_password_file)
        comparison = replay.replay(backend, Core)
    except (
        UnreadableError,
        DamagedJournalError,
        JournalRefusedError,
        JournalAccessError,
    ) as error:
        print(f"everstep-controller replay: {error}", file=sys.stderr)
        return 1
    for line in replay.report(comparison):
        print(line)
    return 1 if comparison.differences else 0


def _of_journal(journal: str) -> ControllerConfig | None:
    """Return a configuration with a journal that is typed; None, and what is wrong is printed."""
    config = ControllerConfig(journal=journal)
    problems = config.problems() if is_url(journal) else []
    for problem in problems:
        print(f"everstep-controller replay: {problem}", file=sys.stderr)
    return None if problems else config


def _serve(config: ControllerConfig, options: Options) -> int:
    try:
        backend = journal_at(config.journal, config.journal_password_file)
    except JournalRefusedError as error:
        logger.error("%s", error)
        return 1
    options = replace(options, backend=backend)
    try:
        with backend.errors():
            if config.role == STANDBY and not options.recover_by:
                with backend.standing_by() as candidate:
                    asyncio.run(_run_standby(config, options, candidate))
            else:
                backend.tell(told_of(config).encode())
                with backend.lock():
                    asyncio.run(_run(config, options))
    except _TOLD_AS_THEY_ARE as error:
        logger.error("%s", error)
    except (OSError, JournalAccessError) as error:
        logger.error("cannot start with the journal %s: %s", config.journal, error)
    except DamagedJournalError as error:
        logger.error(
            "the journal %s is damaged: %s; nothing of it was loaded or changed. %s; then run "
            "'everstep-controller recover', which rebuilds from the agents what that does not have",
            config.journal,
            error,
            backend.damage_advice(),
        )
    except UnreadableError as error:
        logger.error(
            "the journal %s cannot be read: %s; start the version that wrote it, or put back a "
            "copy and run 'everstep-controller recover', which rebuilds from the agents what the "
            "copy does not have",
            config.journal,
            error,
        )
    else:
        return 0
    return 1


def _stop_signal() -> asyncio.Event:
    """Return what is set when this process shall stop; called on the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a shell's background job
        loop.add_signal_handler(signal.SIGINT, stop.set)
    return stop


async def _run_standby(
    config: ControllerConfig, options: Options, candidate: JournalCandidate
) -> None:
    """Stand by until a signal, or until the journal is this process's own; then be active."""
    collect_garbage_seldom()
    stop = _stop_signal()
    watchdog = asyncio.create_task(_watchdog(), name="watchdog")
    assert options.backend is not None

    def ready(served: Served) -> None:
        logger.info(
            "version %s, standby, listening %s, metrics on port %d, journal %s",
            VERSION,
            _listening(config, served.port),
            served.metrics_port,
            config.journal,
        )
        notify("READY=1\nSTATUS=stands by")

    standby = open_standby(config, options, options.backend, candidate, ready)
    following = asyncio.create_task(standby.run(), name="standby")
    stopping = asyncio.create_task(stop.wait(), name="signals")
    await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
    watchdog.cancel()
    if not following.done():
        notify("STOPPING=1")
        following.cancel()
        await asyncio.wait({following})
        return
    stopping.cancel()
    followed = following.result()
    await _serve_until(config, replace(options, followed=followed), stop)


async def _run(config: ControllerConfig, options: Options) -> None:
    collect_garbage_seldom()
    await _serve_until(config, options, _stop_signal())


async def _serve_until(config: ControllerConfig, options: Options, stop: asyncio.Event) -> None:
    """Be the active controller until a signal, an order to hand over, or a failure."""
    controller = Controller.open(config, options)
    await _started(controller, stop)
    logger.info(
        "version %s, term %d, listening %s, metrics on port %d, journal %s",
        VERSION,
        controller.runtime.state.term,
        _listening(config, controller.port),
        controller.metrics_port,
        config.journal,
    )
    notify("READY=1\nSTATUS=active")
    watchdog = asyncio.create_task(_watchdog(), name="watchdog")
    failure = asyncio.create_task(controller.failure(), name="failure")
    ending = {
        asyncio.create_task(stop.wait(), name="signals"),
        asyncio.create_task(controller.handing_over(), name="hand-over"),
    }
    await asyncio.wait({failure, *ending}, return_when=asyncio.FIRST_COMPLETED)
    if failure.done():
        _end_failed(failure.result())
    notify("STOPPING=1")
    for task in (failure, watchdog, *ending):
        task.cancel()
    await controller.stop()


async def _started(controller: Controller, stop: asyncio.Event) -> None:
    """Start a controller. One that fails meanwhile, or shall stop and cannot write, ends here."""
    starting = asyncio.create_task(controller.start(), name="start")
    failure = asyncio.create_task(controller.failure(), name="failure")
    stopping = asyncio.create_task(stop.wait(), name="signals")
    await asyncio.wait({starting, failure, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() and not failure.done():
        await asyncio.wait({starting, failure}, timeout=_START_STOPS_S)
    if not starting.done():
        why = failure.result() if failure.done() else "the journal did not answer at the start"
        _end_failed(why)
    failure.cancel()
    stopping.cancel()
    starting.result()


def _end_failed(why: str) -> NoReturn:
    logger.critical("%s; this process ends, and the next one goes on", why)
    # At once, as by a kill: nothing of what a stop waits for is certain to come.
    os._exit(1)


def _listening(config: ControllerConfig, port: int) -> str:
    return f"at {config.listen}" if socket_path(config.listen) else f"on port {port}"


async def _watchdog() -> None:
    """Tell the service manager that the event loop turns."""
    interval_s = watchdog_interval_s()
    while interval_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)


def collect_garbage_seldom() -> None:
    """Have Python's garbage collector run after so many objects more.

    Nearly all that the controller drops goes at once, by its count of references. A pass over all
    that lives takes 0.1 s in a fleet of 2,000 nodes, longer than the plan of its largest job. That
    plan makes 40,000 objects, on 12,500 nodes 250,000, and by Python's own thresholds (700, 10, 10)
    would pay for the pass.
    """
    gc.set_threshold(_YOUNG_OBJECTS_MAX, 10, 10)


if __name__ == "__main__":
    sys.exit(main())
