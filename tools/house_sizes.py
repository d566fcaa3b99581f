"""House sizes: lines by component, long functions, and functions of many decisions."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from source_tree import COMPONENTS, SourceTree

# What stands beside the product; its stubs are written by a command.
BESIDE = ("bench", "tests", "tools", "docs")
LONG_FUNCTION_LINES = 40
COMPLEX = 8
Function = ast.FunctionDef | ast.AsyncFunctionDef
# One way more through a function for each, as mccabe counts, …
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)
# … and for what it does not count.
_EXPRESSIONS = (ast.IfExp, ast.comprehension)


def lines_by_component(tree: SourceTree) -> dict[str, int]:
    """Return the lines of Python of the product's components and of what stands beside them."""
    product = Counter[str]()
    for file in tree.files:
        product[file.component] += file.lines
    beside = {name: sum(_lines(tree.root / name)) for name in BESIDE}
    return {**{name: product[name] for name in COMPONENTS}, **beside}


def _lines(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*.py"):
        if "generated" not in path.parts:
            yield path.read_bytes().count(b"\n")


def long_functions(tree: SourceTree) -> dict[str, int]:
    """Return the functions of more than 40 lines, longest first."""
    found = {
        f"{file.path}: {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for file in tree.files
        for node in ast.walk(file.syntax)
        if isinstance(node, Function)
    }
    longest = Counter({name: lines for name, lines in found.items() if lines > LONG_FUNCTION_LINES})
    return dict(longest.most_common())


def complex_functions(tree: SourceTree) -> Counter[str]:
    """Count the functions of more than 8 ways, by component.

    A way more is each branch, each ``and`` and ``or``, each ``x if y else z`` and each clause of a
    comprehension: mccabe counts the first of these alone.
    """
    return Counter(
        file.component
        for file in tree.files
        for node in ast.walk(file.syntax)
        if isinstance(node, Function) and complexity(node) > COMPLEX
    )


def complexity(function: Function) -> int:
    """Return how many ways there are through a function, those inside of it left out."""
    ways = 1
    for node in _own_nodes(function):
        if isinstance(node, (*_BRANCHES, *_EXPRESSIONS)):
            ways += 1 + (len(node.ifs) if isinstance(node, ast.comprehension) else 0)
        elif isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
    return ways


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))
