"""House counts: sizes of files, imports between them, names that are used twice."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from source_tree import SourceFile, SourceTree

CORE = "everstep_controller.core"
SMALL_LINES = 60
FOLDER_FILES_MAX = 15
# Components whose public class names mean one thing each, also beside those of common.
NAMING_COMPONENTS = ("agent", "controller", "trainer")
BARE_VERBS = frozenset({"take", "look", "tell", "over", "told"})
_CAPTION_WITHOUT_THING = re.compile(r"(What|Which|How|Who)\b")
# Names of the classes of records; the first that the core has is counted.
JOB_RECORDS = ("JobRecord", "Job")
NODE_RECORDS = ("NodeRecord",)
# Calls that change the list, set or mapping that they are made on.
_CHANGING = frozenset(
    {"append", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
    | {"setdefault", "sort", "update"}
)
# Written by `make reference` and `make proto`, so nobody touches them by hand.
_GENERATED_PATHS = re.compile(r"/generated/|^docs/(configuration|signals)\.md$")


@dataclass(frozen=True)
class Sizes:
    """Lengths of a set of files, in lines."""

    files: int
    median: float
    p90: int
    longest: int


def sizes(files: Iterable[SourceFile]) -> Sizes:
    """Measure files; p90 is the length that nine of ten files do not exceed."""
    lengths = sorted(file.lines for file in files) or [0]
    return Sizes(len(lengths), median(lengths), lengths[int(len(lengths) * 0.9)], lengths[-1])


def core_modules(tree: SourceTree) -> list[SourceFile]:
    """Return the files of the core, less those that only make a folder a package."""
    inside = (file for file in tree.files if f"{file.module}.".startswith(f"{CORE}."))
    return [file for file in inside if not file.is_package]


# --- files that one other file needs -------------------------------------------------------------


def small_files(tree: SourceTree) -> list[SourceFile]:
    """Return the files under 60 lines that exactly one other source file imports."""
    importers = Counter(target for _, target in tree.imports)
    return [file for file in tree.files if file.lines < SMALL_LINES and importers[file.module] == 1]


# --- folders --------------------------------------------------------------------------------------


def large_folders(tree: SourceTree) -> dict[str, int]:
    """Return the folders with more than 15 files of their own, and how many these are."""
    files = Counter(file.folder for file in tree.files if not file.is_package)
    return {folder: count for folder, count in files.most_common() if count > FOLDER_FILES_MAX}


# --- imports between folders ---------------------------------------------------------------------


def mutual_folders(tree: SourceTree) -> list[tuple[str, str]]:
    """Return the pairs of folders of one component of which each imports from the other."""
    arrows = _folder_arrows(tree)
    return sorted((one, other) for one, other in arrows if one < other and (other, one) in arrows)


def core_circles(tree: SourceTree) -> list[str]:
    """Return the packages of the core that reach themselves over others, in alphabetic order."""
    arrows = defaultdict(set)
    for one, other in _folder_arrows(tree):
        if one.startswith(f"{CORE}.") and other.startswith(f"{CORE}."):
            arrows[_core_package(one)].add(_core_package(other))
    return sorted(one for one in list(arrows) if one in _reached(arrows, one))


def _core_package(folder: str) -> str:
    return ".".join(folder.split(".")[:3])


def _reached(arrows: dict[str, set[str]], start: str) -> set[str]:
    """Return what can be reached over arrows to others."""
    reached: set[str] = set()
    waiting = [other for other in arrows[start] if other != start]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting.extend(arrows.get(one, ()))
    return reached


def _folder_arrows(tree: SourceTree) -> set[tuple[str, str]]:
    ends = ((tree.modules[source], tree.modules[target]) for source, target in tree.imports)
    return {
        (source.folder, target.folder)
        for source, target in ends
        if source.component == target.component and source.folder != target.folder
    }


# --- names ---------------------------------------------------------------------------------------


def class_places(tree: SourceTree) -> dict[str, list[SourceFile]]:
    """Return where every public class name is defined."""
    places: dict[str, list[SourceFile]] = defaultdict(list)
    for file in tree.files:
        for node in file.classes:
            if not node.name.startswith("_"):
                places[node.name].append(file)
    return places


def classes_named_twice(tree: SourceTree) -> dict[str, list[str]]:
    """Return the class names that mean two things in a component, or in it and in common."""
    twice: dict[str, list[str]] = {}
    for name, files in class_places(tree).items():
        for component in NAMING_COMPONENTS:
            mine = [file.path for file in files if file.component in (component, "common")]
            if len(mine) > 1:
                twice[name] = sorted({*twice.get(name, []), *mine})
    return dict(sorted(twice.items()))


def captions_without_thing(tree: SourceTree) -> list[SourceFile]:
    """Return the files whose caption begins with What, Which, How or Who."""
    return [file for file in tree.files if _CAPTION_WITHOUT_THING.match(file.caption)]


def bare_verbs(tree: SourceTree) -> list[str]:
    """Return the methods that are called take, look, tell, over or told, with their places."""
    return [
        f"{file.path}: {owner.name}.{node.name}"
        for file in tree.files
        for owner in ast.walk(file.syntax)
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in BARE_VERBS
    ]


# --- records ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordFields:
    """The fields of a record: its own, and with those of the values that it holds."""

    own: tuple[str, ...]
    # The fields of each class that the record is made of, the record itself included.
    by_class: dict[str, int]

    @property
    def all_together(self) -> int:
        """Return how many there are when each value stands for its own fields."""
        return sum(self.by_class.values()) - max(0, len(self.by_class) - 1)


def record_fields(tree: SourceTree, names: Sequence[str] = JOB_RECORDS) -> RecordFields:
    """Read the class of a record in the core, of which the values are counted, too."""
    classes = dict(_core_dataclasses(tree))
    record = next((name for name in names if name in classes), None)
    if record is None:
        return RecordFields((), {})
    by_class: dict[str, int] = {}
    waiting = [record]
    while waiting:
        name = waiting.pop()
        if name not in by_class:
            fields = list(_fields(classes[name]))
            by_class[name] = len(fields)
            waiting.extend(held for _, held in fields if held in classes)
    return RecordFields(tuple(name for name, _ in _fields(classes[record])), by_class)


def _core_dataclasses(tree: SourceTree) -> Iterator[tuple[str, ast.ClassDef]]:
    for file in core_modules(tree) + [file for file in tree.files if file.is_package]:
        if f"{file.module}.".startswith(f"{CORE}."):
            for node in file.classes:
                if any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                    yield node.name, node


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields of a dataclass with their types, less the None that they may be."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            held = ast.unparse(item.annotation).strip("'\"")
            if not held.startswith("ClassVar"):
                yield item.target.id, held.removesuffix(" | None").removeprefix("None | ")


def job_write_sites(tree: SourceTree) -> Counter[str]:
    """Count the places of each controller file that change the record of a job.

    A place assigns to, deletes from, or calls a changing method on what stands in a field of a
    variable ``job``, or of a parameter that has the record's type.
    """
    own = frozenset(record_fields(tree).own)
    sites: Counter[str] = Counter()
    for file in tree.files:
        if f"{file.module}.".startswith("everstep_controller."):
            jobs = {"job", *_job_parameters(file.syntax)}
            count = sum(
                _is_in_job(target, jobs, own)
                for node in ast.walk(file.syntax)
                for target in _changed(node)
            )
            if count:
                sites[file.path] = count
    return sites


def _job_parameters(syntax: ast.Module) -> set[str]:
    return {
        node.arg
        for node in ast.walk(syntax)
        if isinstance(node, ast.arg)
        and node.annotation is not None
        and ast.unparse(node.annotation).strip("'\"") in JOB_RECORDS
    }


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement or call changes."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        targets = [node.func.value] if node.func.attr in _CHANGING else []
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _is_in_job(target: ast.expr, jobs: set[str], fields: frozenset[str]) -> bool:
    """Return whether an expression names something in a field of a job."""
    first = ""
    while isinstance(target, ast.Attribute | ast.Subscript):
        first = target.attr if isinstance(target, ast.Attribute) else first
        target = target.value
    return isinstance(target, ast.Name) and target.id in jobs and first in fields


# --- additions -----------------------------------------------------------------------------------


def files_of_addition(patch: str) -> list[str]:
    """Return the hand-written files that a patch touches."""
    touched = re.findall(r"^diff --git a/.+ b/(.+)$", patch, re.MULTILINE)
    if not touched:
        touched = re.findall(r"^\+\+\+ (?:b/)?(\S+)", patch, re.MULTILINE)
    return sorted({path for path in touched if not _GENERATED_PATHS.search(path)})
