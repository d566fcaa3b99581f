"""``everstep-agent``: a node's daemon; watches the node, keeps snapshots, tells the controller."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everstep_common.config import EX_CONFIG, ConfigError, load
from everstep_common.logs import configure_logging
from everstep_common.version import VERSION

if TYPE_CHECKING:
    from everstep_agent.config.agent_config import AgentConfig

_DEFAULT_CONFIG = Path("/etc/everstep/agent.toml")


# The exit code by which a shell shows that Ctrl-C has ended a command.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent, or one of its commands; return the exit code."""
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _INTERRUPTED


def _main(words: list[str]) -> int:
    command = _command(words[0]) if words else None
    if command is not None:
        return command(words[1:])
    parser = _parser()
    options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"{' '.join(unknown)}: unknown here; a command comes first, as shown above")
    # Imported only here: the command `hold` needs none of this, and its process stays small.
    from everstep_agent.config.agent_config import AgentConfig
    from everstep_agent.daemon import DaemonError
    from everstep_agent.persistence.data_folder import FolderInUseError

    try:
        config = load(AgentConfig, _config_path(options.config))
    except ConfigError as error:
        return _wrong(error)
    configure_logging(config.log_level, config.log_style)
    try:
        _serve(config)
    except ConfigError as error:
        return _wrong(error)
    except (DaemonError, FolderInUseError) as error:
        print(f"everstep-agent: {error}", file=sys.stderr)
        return 1
    return 0


def _command(word: str) -> Callable[[Sequence[str]], int] | None:
    """Return a command; each is imported only when it is run, because `hold` has to stay small."""
    if word == "hold":
        from everstep_agent.commands.hold import main as hold

        return hold
    if word == "check":
        from everstep_agent.health.check import main as check

        return check
    if word == "read-log":
        from everstep_agent.commands.read_log import main as read_log

        return read_log
    if word == "rules":
        from everstep_agent.commands.rules import main as rules

        return rules
    if word == "inventory":
        from everstep_agent.commands.inventory import main as inventory

        return inventory
    if word == "join":
        from everstep_agent.commands.join import main as join

        return join
    if word == "leave-cluster":
        from everstep_agent.commands.leave_cluster import main as leave_cluster

        return leave_cluster
    return None


def _serve(config: "AgentConfig") -> None:
    """Run until stopped. Raises ConfigError, DaemonError and FolderInUseError."""
    from everstep_agent.commands.pod_enrolment import enrolled
    from everstep_agent.concurrency.cycle_collector import collect_young_only
    from everstep_agent.daemon import run
    from everstep_agent.vault.transfer.certificates import TlsCertificates

    config = enrolled(config)
    if config.jobs.bulk_tls:  # with one that no other node takes, it would begin in vain
        TlsCertificates(config.tls, config.node_name)
    collect_young_only()
    asyncio.run(run(config))


def _wrong(error: ConfigError) -> int:
    for problem in error.problems:
        print(f"everstep-agent: {problem}", file=sys.stderr)
    return EX_CONFIG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-agent",
        usage="everstep-agent [--config FILE]\n"
        "       everstep-agent {join,check,read-log,rules,inventory,leave-cluster,hold} …",
        description="Watches this node and its training jobs, and reports to the controller.",
        epilog="everstep-agent join TOKEN CONTROLLER: get this node its certificate. "
        "everstep-agent check: is this node fit for work? For people and schedulers. "
        "everstep-agent inventory: write down the hardware of this node, as what is expected from "
        "now on. everstep-agent read-log FILE: find faults in a saved kernel log. "
        "everstep-agent rules check FILE: check your own rules over kernel lines. "
        "everstep-agent leave-cluster: forget the cluster that this agent belongs to. "
        "everstep-agent hold -- COMMAND …: keep snapshot memory over restarts of COMMAND, as "
        "systemd does with FileDescriptorStoreMax=.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"TOML file; {_DEFAULT_CONFIG} if it exists, else defaults",
    )
    parser.add_argument("--version", action="version", version=f"everstep-agent {VERSION}")
    return parser


def _config_path(given: Path | None) -> Path | None:
    return given or (_DEFAULT_CONFIG if _DEFAULT_CONFIG.exists() else None)


if __name__ == "__main__":
    sys.exit(main())
