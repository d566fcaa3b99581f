"""Built-in rule tables: what the agent ships of tables/kernel_rules, in the order of judgement.

The tables are read as modules are, by the import system when the agent starts, so that the
conditions in them are as much a part of the catalogue as those that detectors declare.
"""

import pkgutil
import tomllib

from everstep_agent.detectors.kernel.rules.rule import LineRules
from everstep_agent.detectors.kernel.rules.rule_table import Document, RuleTable, read_table

# Of two rules that know a line, that of the earlier table speaks.
NAMES = (
    "nvidia",
    "network_cards",
    "network",
    "accelerators",
    "pcie",
    "hardware",
    "disks",
    "filesystems",
    "file_servers",
    "machine",
    "fabric_manager",
    "daemons",
)


def document_of(name: str) -> Document:
    """Return one table as TOML has it. Raises OSError."""
    text = pkgutil.get_data("everstep_agent.tables", f"kernel_rules/{name}.toml")
    assert text is not None, "the import system reads no data"
    return tomllib.loads(text.decode("utf-8"))


_TABLES: dict[str, RuleTable] = {name: read_table(document_of(name)) for name in NAMES}

RULES = LineRules([rule for table in _TABLES.values() for rule in table.rules])
# Its log is another one, and no other rule is asked of its lines.
FABRIC_MANAGER_RULES = LineRules(_TABLES["fabric_manager"].rules)
# What these programs write to a system log is judged by rules of their own.
DAEMONS = frozenset({"smartd", "mmfs"})
DAEMON_RULES = LineRules(_TABLES["daemons"].rules)
CONDITIONS = tuple(condition for table in _TABLES.values() for condition in table.conditions)
