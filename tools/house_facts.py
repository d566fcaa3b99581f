"""House facts: what the controller's state says twice, and settings whose defaults differ."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from source_tree import SourceFile, SourceTree

_CORE = "everstep_controller.core."
_INDEX, _STATE, _SETTINGS = "FleetIndex", "State", "Settings"
# So many fields of the same names make a dataclass a copy of the settings, and fewer are chance.
_COPY_FIELDS_MIN = 6
_NS_PER_S = 1e9
# What a number counts whose field ends so.
_UNITS = {"_ns": 1 / _NS_PER_S, "_s": 1.0}


@dataclass(frozen=True)
class Default:
    """Default of one setting: the class that has it, and its value; of a duration in seconds."""

    owner: str
    value: str


def derived_fields(tree: SourceTree, names: frozenset[str]) -> list[str]:
    """Return the fields of the core's state that an index of these names computes from others."""
    state = _core_class(tree, _STATE)
    fields = [] if state is None else [name for name, _ in _defaults(state)]
    return [
        field
        for field in fields
        if any(field == name or field.startswith(f"{name}_") for name in names)
    ]


def index_names(tree: SourceTree) -> frozenset[str]:
    """Return what the fleet's index of a tree computes; nothing where it has none."""
    index = _core_class(tree, _INDEX)
    found = [] if index is None else [name for name, _ in _defaults(index)]
    return frozenset(name for name in found if not name.startswith("_"))


def differing_defaults(tree: SourceTree) -> dict[str, list[Default]]:
    """Return the settings of the core that have another default in another class.

    One that is not set in a class, None, is no default of its own: the settings' holds.
    """
    settings = _core_class(tree, _SETTINGS)
    if settings is None:
        return {}
    known = {_stem(name): [Default(_SETTINGS, value)] for name, value in _values(settings)}
    for owner in _copies(tree, settings, known.keys()):
        for name, value in _values(owner):
            if _stem(name) in known and value != "None":
                known[_stem(name)].append(Default(owner.name, value))
    # A field without a value of its own ("None") says nothing, as those of a group of nodes.
    said = {name: [one for one in found if one.value != "None"] for name, found in known.items()}
    return {name: found for name, found in said.items() if len({one.value for one in found}) > 1}


def _copies(
    tree: SourceTree, settings: ast.ClassDef, stems: Collection[str]
) -> Iterator[ast.ClassDef]:
    for file in tree.files:
        for node in file.classes if file.component == "controller" else ():
            mine = {_stem(name) for name, _ in _defaults(node)}
            if node is not settings and len(mine.intersection(stems)) >= _COPY_FIELDS_MIN:
                yield node


def _core_class(tree: SourceTree, name: str) -> ast.ClassDef | None:
    files: Iterator[SourceFile] = (
        file for file in tree.files if f"{file.module}.".startswith(_CORE)
    )
    return next((node for file in files for node in file.classes if node.name == name), None)


def _defaults(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the fields of a class with what they are set to."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id, item.value


def _values(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields that have a default, durations in seconds whatever they are kept in."""
    for name, default in _defaults(node):
        if default is None:
            continue
        in_seconds = isinstance(default, ast.Call) and "duration" in ast.unparse(default.func)
        if isinstance(default, ast.Call) and default.args:
            default = default.args[0]
        number = _number(default)
        unit = (
            1.0
            if in_seconds
            else next((factor for ending, factor in _UNITS.items() if name.endswith(ending)), 1.0)
        )
        yield name, ast.unparse(default) if number is None else f"{number * unit:g}"


def _number(default: ast.expr) -> float | None:
    """Return the value of a number, or of a product of numbers; None: it is another thing."""
    match default:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = _number(left), _number(right)
            return None if one is None or other is None else one * other
    return None


def _stem(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_s")
