"""Site rules: a site's own rules over kernel lines, from the TOML files of one folder."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.rule import LineRule, LineRules
from everstep_agent.detectors.kernel.rules.rule_check import Mistake, Taken, check_table
from everstep_agent.detectors.kernel.rules.rule_table import Document, RuleTable, read_table
from everstep_common.config import ConfigError
from everstep_common.judging.condition import Condition
from everstep_common.toml_file import TomlError, read_toml

_RULE_HEADING = re.compile(r"\s*\[\[\s*rules\s*\]\]")
# Three times as many as our own. Each needle is looked for in every line of a flood.
_RULES_MAX = 1000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SiteRules:
    """What a site adds to the agent's own rules and conditions."""

    rules: LineRules = RULES
    added: tuple[Condition, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=lambda: CONDITIONS)


# The agent's own rules and conditions, and nothing else.
NO_SITE_RULES = SiteRules()


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file, and everything that is wrong in it; ``examples`` counts its example lines."""

    path: Path
    table: RuleTable
    problems: tuple[str, ...] = ()
    examples: int = 0


def load_site_rules(folder: Path | None) -> SiteRules:
    """Return the rules of a folder with the agent's own. Raises ConfigError with every mistake."""
    if folder is None:
        return NO_SITE_RULES
    try:
        paths, others = rule_files(folder)
    except OSError as error:
        raise ConfigError([f"{folder}: cannot be read: {error.strerror}"]) from error
    files = read_rule_files(paths)
    if problems := [problem for file in files for problem in file.problems]:
        raise ConfigError(problems)
    logger.info(
        "rules of the site: %d in %s%s",
        len(_rules(files)),
        ", ".join(str(path) for path in paths) or f"{folder}, which has no *.toml",
        f"; not read: {', '.join(path.name for path in others)}" if others else "",
    )
    added = tuple(condition for file in files for condition in file.table.conditions)
    return SiteRules(
        LineRules([*RULES, *_rules(files)]),
        added,
        {**CONDITIONS, **{condition.name: condition for condition in added}},
    )


def rule_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder that are read, in order, and what else is in it.

    Raises OSError.
    """
    paths = sorted(folder.iterdir())
    read = [path for path in paths if path.suffix == ".toml"]
    return read, [path for path in paths if path not in read]


def read_rule_files(paths: Iterable[Path]) -> list[RuleFile]:
    """Read and check files in their order; no name may be in two, nor be one of the agent's."""
    files: list[RuleFile] = []
    for path in paths:
        before = LineRules([*RULES, *_rules(files)])
        left = _RULES_MAX - len(_rules(files))
        names = {condition.name for file in files for condition in file.table.conditions}
        files.append(_read(path, Taken(before, {*CONDITIONS, *names}), left))
    return files


def _rules(files: Iterable[RuleFile]) -> list[LineRule]:
    return [rule for file in files for rule in file.table.rules]


def _read(path: Path, taken: Taken, rules_max: int) -> RuleFile:
    try:
        read = read_toml(path)
    except TomlError as error:
        return _wrong(path, str(error))
    document: Document = read.tables
    rows = document.get("rules", [])
    if isinstance(rows, list) and len(rows) > rules_max:
        return _wrong(
            path,
            f"{len(rows)} rules, of which {rules_max} are left: a site may have {_RULES_MAX}, for "
            "each is looked for in every line; make one pattern of those that mean the same",
        )
    mistakes = check_table(document, taken)
    if mistakes:
        lines = [n for n, line in enumerate(read.text.split("\n"), 1) if _RULE_HEADING.match(line)]
        return RuleFile(
            path, RuleTable((), ()), tuple(_told(path, one, rows, lines) for one in mistakes)
        )
    table = read_table(document)
    played = sum(len(row["examples"].strip().splitlines()) for row in rows)
    return RuleFile(path, table, tuple(_endless(path, table)), played)


def _wrong(path: Path, sentence: str) -> RuleFile:
    return RuleFile(path, RuleTable((), ()), (f"{path}: {sentence}",))


def _endless(path: Path, table: RuleTable) -> Iterable[str]:
    for condition in table.conditions:
        if not condition.quiet_ns:
            yield (
                f"{path}: conditions.{condition.name}: quiet_min: missing beside clears_when; "
                "nothing else would end a finding of it"
            )


def _told(path: Path, mistake: Mistake, rows: Sequence[object], lines: Sequence[int]) -> str:
    if mistake.rule is None:
        return f"{path}: {mistake.sentence}"
    row = rows[mistake.rule]
    name = row.get("name") if isinstance(row, dict) else None
    rule = f"rule {name}" if isinstance(name, str) else f"rule {mistake.rule + 1}"
    # An example may have a line like the heading of a rule: then no place is better than a wrong.
    where = f":{lines[mistake.rule]}" if len(lines) == len(rows) else ""
    return f"{path}{where}: {rule}: {mistake.sentence}"
