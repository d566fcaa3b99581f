"""``everstep-agent inventory``: write down what this node has, for later runs to compare with."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from everstep_agent.commands.inventory_file import as_toml, write_new
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.memory import no_memory
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_agent.sources.inventory import read_cpus, seen
from everstep_common.clock import stamp_clock
from everstep_common.config import EX_CONFIG, ConfigError, load
from everstep_common.judging.book import FindingBook

_DEFAULT_CONFIG = Path("/etc/everstep/agent.toml")
# The groups of sources that an inventory is made of; services are none of them, so one that cannot
# be read is no reason to refuse to write an inventory.
_NEEDED = frozenset({"gpu", "ib", "net", "host", "disk", "accelerators"})

_EPILOG = """\
Nothing in the file is of this one node, so that one file can serve all nodes of a type.

examples:
  everstep-agent inventory                                           look at it
  everstep-agent inventory --output /etc/everstep/inventory.toml     keep it
  everstep-agent check --only inventory                              compare with it
"""


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code: 0 written, 1 not, 2 wrong command line."""
    given = _parser().parse_args(words)
    default = _DEFAULT_CONFIG if os.access(_DEFAULT_CONFIG, os.R_OK) else None
    logging.disable(logging.CRITICAL)
    try:
        config = load(AgentConfig, given.config or default)
        text = asyncio.run(_look(config))
    except ConfigError as error:
        return _refuse("; ".join(error.problems), EX_CONFIG)
    except OSError as error:
        return _refuse(f"{error}; nothing was written", 1)
    if given.output is None:
        print(text, end="")
        return 0
    try:
        write_new(given.output, text, replace=given.force)
    except FileExistsError:
        return _refuse(f"{given.output} is there already; --force replaces it", 1)
    except OSError as error:
        return _refuse(f"{given.output} cannot be written: {error.strerror or error}", 1)
    print(f"{given.output} is written; 'everstep-agent check --only inventory' compares with it")
    return 0


async def _look(config: AgentConfig) -> str:
    """Return the file. Raises OSError when something cannot be read: it would not be expected."""
    stamp = stamp_clock(config.proc / "sys/kernel/random/boot_id")
    findings = Findings(FindingBook(CONDITIONS), lambda _: None, lambda _: None, stamp)
    node = NodeWatch(config, findings, no_memory(), stamp)
    try:
        looks = await node.watch.look(_NEEDED)
    finally:
        node.close()
    if unread := [f"{look.probe}: {look.trouble}" for look in looks if look.trouble]:
        raise OSError("; ".join(unread))
    if node.view.gpus is None:
        raise OSError("the GPU driver does not answer")
    found = seen(node.view, read_cpus(config.sysfs))
    return as_toml(found, config.node_name, datetime.now(UTC).strftime("%Y-%m-%d"))


def _refuse(sentence: str, code: int) -> int:
    print(f"everstep-agent inventory: {sentence}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-agent inventory",
        description="Writes what this node has as the inventory that is expected from now on.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="else standard output")
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")
    parser.add_argument("--config", type=Path, metavar="FILE", help="as for the agent itself")
    return parser
