"""``everstep-agent leave-cluster``: make a node's agent a new one, which any cluster may adopt."""

import argparse
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.jobs.state.store import RuntimeFolder
from everstep_agent.persistence.agent_database import forget_cluster
from everstep_agent.persistence.data_folder import FolderInUseError, agent_database, only_agent_of
from everstep_common.config import EX_CONFIG, ConfigError, load

_DEFAULT_CONFIG = Path("/etc/everstep/agent.toml")
_EPILOG = """\
Forgets the cluster, the terms and the jobs that this agent has seen, and what the controller of
that cluster has not acknowledged; what it knows of the hardware stays. The agent must be stopped:

  systemctl stop everstep-agent
  everstep-agent leave-cluster
  systemctl start everstep-agent
"""


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code: 0 done, 1 not, 78 wrong configuration."""
    given = _parser().parse_args(words)
    try:
        config = load(AgentConfig, given.config or _default_config())
    except ConfigError as error:
        return _refuse("; ".join(error.problems), EX_CONFIG)
    try:
        _become_owner(config.state_folder)
        cluster = _leave(config)
    except FolderInUseError as error:
        return _refuse(f"{error}; an agent is stopped by: systemctl stop everstep-agent", 1)
    except (OSError, sqlite3.Error) as error:
        return _refuse(f"{config.state_folder}: {error}", 1)
    left = f"left cluster {cluster}" if cluster else "it belonged to no cluster yet"
    at = " or ".join(config.controllers)
    print(f"{left}; start the agent, and it joins that of the controller at {at}")
    return 0


def _become_owner(folder: Path) -> None:
    """As root, go on as the agent's user, whose files these are. Raises OSError."""
    if os.geteuid() != 0 or not folder.exists():
        return
    owner = folder.stat()
    if owner.st_uid != 0:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)


def _leave(config: AgentConfig) -> str:
    """Forget everything of the cluster; return its id. Raises FolderInUseError, OSError."""
    database, jobs = agent_database(config.state_folder), config.jobs.runtime_folder
    if not database.exists():
        return ""
    with only_agent_of(config.state_folder):
        if jobs.exists():
            with closing(RuntimeFolder.open(jobs)) as folder:
                _remove_database(Path(folder.database()))
        return forget_cluster(database)


def _remove_database(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)


def _default_config() -> Path | None:
    return _DEFAULT_CONFIG if _DEFAULT_CONFIG.exists() else None


def _refuse(sentence: str, code: int) -> int:
    print(f"everstep-agent leave-cluster: {sentence}; nothing was forgotten", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-agent leave-cluster",
        description="Makes this node's agent a new one, which joins the cluster of its controller.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="as for the agent itself")
    return parser
