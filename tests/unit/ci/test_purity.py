"""What says of itself that it is pure is held to it: a contract forbids it I/O and clocks."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_IMPURE = {"asyncio", "grpc", "sqlite3", "subprocess", "time", "random", "logging", "threading"}


def _contracts() -> Iterator[list[str]]:
    """Yield the modules of each contract that forbids I/O and clocks."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in known["tool"]["importlinter"]["contracts"]:
        if set(contract.get("forbidden_modules", ())) >= _IMPURE:
            yield contract["source_modules"]


def _pure_modules() -> Iterator[str]:
    """Yield the modules whose caption says "Pure"."""
    for folder in ("agent", "common", "controller", "trainer"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            if re.search(r"(^|[.:] )Pure\b", said, re.MULTILINE):
                name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
                yield name.removesuffix(".__init__")


def test_a_contract_covers_every_module_that_calls_itself_pure() -> None:
    covered = [module for modules in _contracts() for module in modules]
    pure = list(_pure_modules())
    assert len(pure) > 20
    assert not [
        module
        for module in pure
        if not any(module == one or module.startswith(f"{one}.") for one in covered)
    ]
