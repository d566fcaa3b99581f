"""``everstep-agent rules check``: checks files of kernel line rules, and plays their examples."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from everstep_agent.tables.site_rules import RuleFile, read_rule_files, rule_files

GOOD, WRONG = 0, 1

_DESCRIPTION = """\
Checks files of your own rules over kernel lines, as the agent does when it starts: every mistake at
once, with file and line, and each rule by its example lines. It needs no root, no agent and no
configuration. docs/extending.md shows how to write a rule."""

_EPILOG = """\
examples:
  everstep-agent rules check pdu.toml
  everstep-agent rules check /etc/everstep/rules.d            a folder, as the agent reads it

exit code:
  0  no mistakes
  1  mistakes, or a file that cannot be read
  2  wrong arguments"""


def main(arguments: Sequence[str]) -> int:
    """Check files; return the exit code."""
    files = read_rule_files(_named(_parser().parse_args(arguments).files))
    for file in files:
        for problem in file.problems:
            print(f"everstep-agent rules: {problem}", file=sys.stderr)
        if not file.problems:
            print(_summary(file))
    return WRONG if any(file.problems for file in files) else GOOD


def _named(paths: Sequence[Path]) -> list[Path]:
    """Return files, those of a folder in its place; says which of them the agent does not read."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        try:
            read, others = rule_files(path)
        except OSError:
            # It is told as a file that cannot be read.
            found.append(path)
            continue
        found += read
        for other in others:
            print(f"{other}: not read; its name does not end in .toml")
        if not read:
            print(f"{path}: no *.toml in it, and so no rules")
    return found


def _summary(file: RuleFile) -> str:
    rules, conditions = len(file.table.rules), file.table.conditions
    modes = ", ".join(f"{one.name} ({one.mode.value})" for one in conditions) or "none"
    return (
        f"{file.path}: {rules} rule{'s' * (rules != 1)}, {file.examples} "
        f"example{'s' * (file.examples != 1)}, no mistakes; conditions: {modes}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-agent rules",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="check")
    check = verbs.add_parser("check", help="check files and play their examples")
    check.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="files of rules, or a folder"
    )
    return parser
