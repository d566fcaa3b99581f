"""Imports of a script, read from its first statements: nothing is executed.

Only that can be imported ahead of it. A script that first sets an environment variable, for
example, may want the library that it imports next to see it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FILES_MAX = 100
_FILE_BYTES_MAX = 2_000_000


@dataclass(slots=True)
class Found:
    """Modules in the order in which they would be imported; those beside the script are not."""

    modules: list[str] = field(default_factory=list)
    _seen: set[Path] = field(default_factory=set)

    def read(self, path: Path, folder: Path) -> bool:
        """Add what a file imports; return whether everything after it may be imported as well."""
        if path in self._seen:
            return True
        self._seen.add(path)
        tree = _tree(path)
        if tree is None or len(self._seen) > _FILES_MAX:
            return False
        return all(self._statement(statement, folder) for statement in tree.body)

    def _statement(self, statement: ast.stmt, folder: Path) -> bool:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return all(self._module(name, folder) for name in _names(statement))
        return _does_nothing(statement)

    def _module(self, name: str, folder: Path) -> bool:
        beside = _beside(name, folder)
        if beside is not None:
            return self.read(beside, folder)
        if name not in self.modules and name != "__future__":
            self.modules.append(name)
        return True


def imports_of(script: Path, folder: Path) -> list[str]:
    """Return the modules that can be imported before the script runs, in order.

    ``folder`` comes first in its ``sys.path``: what lies there is read, and imported by the rank.
    """
    found = Found()
    found.read(script, folder)
    return found.modules


def _tree(path: Path) -> ast.Module | None:
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            return None
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # the rank itself will say it
        return None


def _names(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif statement.module and not statement.level:
        yield statement.module


def _beside(name: str, folder: Path) -> Path | None:
    """Return the file of a module that lies in the script's folder."""
    place = folder.joinpath(*name.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    # A package without __init__.py, or a module below a file of that name: nobody knows.
    first = folder / name.split(".")[0]
    return first if first.is_dir() and any(first.glob("*.py")) else None


def _does_nothing(statement: ast.stmt) -> bool:
    """Return whether a statement only names things: no import after it can notice."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return not statement.decorator_list
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return not any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(statement)) and (
            all(isinstance(target, ast.Name | ast.Tuple) for target in _targets(statement))
        )
    if isinstance(statement, ast.If):
        return _is_type_checking(statement.test)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name in ("TYPE_CHECKING", "__main__")
