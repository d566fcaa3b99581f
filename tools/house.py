"""House table: counts that show the shape of the source tree, for this revision and another.

``python tools/house.py`` prints it, ``--against REV`` adds the column of a revision, ``--json``
prints both for machines, ``--check`` fails where a fact stands twice, ``--tests REV`` shows where
each test of a revision has gone. What a count means stands beside it in ``--definitions``. The
counts serve: none of them is a rule, but for those that ``--check`` and the import contracts ask.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import house_counts as counts
import house_facts as facts
import house_sizes as sizes
from event_path import FollowedEvent, followed_events, passed_files
from source_tree import COMPONENTS, SourceTree, read_tree, unpacked
from test_mapping import TestMapping, collect_tests, map_tests, read_moves, renamed_files

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class House:
    """Tree with all that is counted of it."""

    tree: SourceTree

    @cached_property
    def derived(self) -> list[str]:
        """Return what the state keeps though the index of this checkout computes it."""
        return facts.derived_fields(self.tree, facts.index_names(read_tree(ROOT)))

    @cached_property
    def additions(self) -> dict[str, list[str]]:
        """Return the hand-written files that each patch of docs/extending touches."""
        patches = sorted((self.tree.root / "docs" / "extending").glob("*.patch"))
        return {patch.stem: counts.files_of_addition(patch.read_text()) for patch in patches}

    def passed(self, event: FollowedEvent) -> dict[str, int]:
        """Count the files that an event passes, by component and in the core."""
        paths = passed_files(self.tree.root, event)
        by_component = Counter(path.partition("/")[0] for path in paths)
        in_core = sum(path.startswith("controller/everstep_controller/core/") for path in paths)
        told = {name: by_component[name] for name in COMPONENTS if by_component[name]}
        return {"all": len(paths), **told, "core": in_core}


@dataclass(frozen=True)
class Row:
    """One line of the table: what is counted, what that means, and how it is found."""

    label: str
    definition: str
    goal: str
    count: Callable[[House], str]


def _files(house: House) -> str:
    return str(len(house.tree.files))


def _lines(house: House) -> str:
    found = counts.sizes(house.tree.files)
    return f"{found.median:g} / {found.p90} / {found.longest}"


def _small(house: House) -> str:
    return str(len(counts.small_files(house.tree)))


def _by_component(house: House) -> str:
    lines = sizes.lines_by_component(house.tree)
    product = sum(lines[name] for name in COMPONENTS)
    return f"product {product:,} (" + ", ".join(f"{name} {lines[name]:,}" for name in lines) + ")"


def _long_functions(house: House) -> str:
    found = sizes.long_functions(house.tree)
    return f"{len(found)}, the longest {max(found.values(), default=0)}"


def _complex(house: House) -> str:
    found = sizes.complex_functions(house.tree)
    return f"{found.total()} (" + ", ".join(f"{name} {found[name]}" for name in sorted(found)) + ")"


def _derived(house: House) -> str:
    return str(len(house.derived))


def _differing(house: House) -> str:
    return str(len(facts.differing_defaults(house.tree)))


def _node_record(house: House) -> str:
    found = counts.record_fields(house.tree, counts.NODE_RECORDS)
    return f"{len(found.own)}; {found.all_together} in {len(found.by_class)} classes"


def _core_modules(house: House) -> str:
    return str(len(counts.core_modules(house.tree)))


def _core_lines(house: House) -> str:
    found = counts.sizes(counts.core_modules(house.tree))
    return f"{found.median:g} / {found.p90} / {found.longest}"


def _core_circles(house: House) -> str:
    return str(len(counts.core_circles(house.tree)))


def _folder_pairs(house: House) -> str:
    return str(len(counts.mutual_folders(house.tree)))


def _record_fields(house: House) -> str:
    return str(len(counts.record_fields(house.tree).own))


def _all_record_fields(house: House) -> str:
    found = counts.record_fields(house.tree)
    return f"{found.all_together} in {len(found.by_class)} classes"


def _largest_record_class(house: House) -> str:
    by_class = counts.record_fields(house.tree).by_class or {"none": 0}
    return f"{max(by_class.values())} ({max(by_class, key=lambda name: by_class[name])})"


def _write_sites(house: House) -> str:
    sites = counts.job_write_sites(house.tree)
    return f"{sites.total()} in {len(sites)} files"


def _names_twice(house: House) -> str:
    return str(len(counts.classes_named_twice(house.tree)))


def _names_anywhere(house: House) -> str:
    places = counts.class_places(house.tree)
    return f"{sum(len(files) > 1 for files in places.values())} of {len(places)}"


def _captions(house: House) -> str:
    return str(len(counts.captions_without_thing(house.tree)))


def _bare_verbs(house: House) -> str:
    return str(len(counts.bare_verbs(house.tree)))


def _large_folders(house: House) -> str:
    return str(len(counts.large_folders(house.tree)))


def _additions(house: House) -> str:
    told = ", ".join(f"{name} {len(files)}" for name, files in house.additions.items())
    return told or "no patches"


def _passed(event: FollowedEvent) -> Callable[[House], str]:
    def count(house: House) -> str:
        found = house.passed(event)
        total = found.pop("all")
        return f"{total} (" + ", ".join(f"{name} {count}" for name, count in found.items()) + ")"

    return count


STATIC_ROWS = (
    Row(
        "source files",
        "hand-written Python files of agent, common, controller, proto and trainer; the generated "
        "stubs are left out, `__init__.py` is not",
        "",
        _files,
    ),
    Row("lines of a file: median / p90 / longest", "of the same files", "", _lines),
    Row(
        "small files with one importer",
        "under 60 lines, and imported by exactly one other source file, lazily or for types too; "
        "tests do not count as importers",
        "",
        _small,
    ),
    Row(
        "lines by component",
        "of Python, the generated stubs left out; the product is agent to trainer",
        "falling",
        _by_component,
    ),
    Row("functions of more than 40 lines", "with their docstrings", "falling", _long_functions),
    Row(
        "functions of more than 8 ways",
        "a way more for each branch, each `and` and `or`, each `x if y else z` and each clause of "
        "a comprehension: mccabe counts the first of these alone",
        "falling",
        _complex,
    ),
    Row(
        "derived fields in the state",
        "fields of the core's State that the index of this checkout computes from nodes and jobs",
        "0, by --check",
        _derived,
    ),
    Row(
        "settings whose defaults differ",
        "fields of the core's Settings that have another default in a class of the controller "
        "that repeats six of them or more",
        "0, by --check",
        _differing,
    ),
    Row(
        "fields of a node's record, and with the values in it",
        "as of the job's record, below",
        "falling",
        _node_record,
    ),
    Row("modules of the core", "without `__init__.py`", "", _core_modules),
    Row(
        "lines of a core module: median / p90 / longest",
        "of the same modules",
        "",
        _core_lines,
    ),
    Row(
        "packages of the core in a circle",
        "folders directly below core/ that reach themselves by imports over others of them",
        "0",
        _core_circles,
    ),
    Row(
        "pairs of folders that import each other",
        "two folders of one component of which each has a file that imports a file of the other, "
        "a folder and one inside it too",
        "0",
        _folder_pairs,
    ),
    Row(
        "fields of the job's record",
        "fields of the dataclass itself",
        "",
        _record_fields,
    ),
    Row(
        "the same with the values in it",
        "each field that holds one dataclass of the core stands for the fields of that; a list, a "
        "set or a mapping is one field",
        "",
        _all_record_fields,
    ),
    Row("the largest class among them", "by its own fields", "", _largest_record_class),
    Row(
        "write sites of the job's record",
        "places in everstep_controller that assign to, delete from, or call a changing method "
        "(`append`, `pop`, …) on something in a field of `job`, or of a parameter of its type",
        "",
        _write_sites,
    ),
    Row(
        "public class names used twice",
        "defined at the top of two files of agent, controller or trainer, or of one of these and "
        "of common",
        "0",
        _names_twice,
    ),
    Row(
        "the same over all components",
        "two files anywhere, so one word for one thing at the agent and the controller counts too",
        "",
        _names_anywhere,
    ),
    Row(
        "captions that do not name the thing",
        "first line of a module's docstring begins with What, Which, How or Who",
        "0",
        _captions,
    ),
    Row(
        "methods called by a bare verb",
        "methods of the name take, look, tell, over or told",
        "falling",
        _bare_verbs,
    ),
    Row(
        "folders of many files",
        f"with more than {counts.FOLDER_FILES_MAX} hand-written files besides `__init__.py`, "
        "those of folders inside it not counted",
        "falling",
        _large_folders,
    ),
    Row(
        "hand-written files per addition",
        "files that each patch of docs/extending touches; generated stubs and pages are left out",
        "finding 4, driver 2, category 1, admin 5, message 5",
        _additions,
    ),
)


def all_rows(*, follow: bool) -> list[Row]:
    """Return the rows of the table; ``follow``: also those for which tests must run."""
    rows = list(STATIC_ROWS)
    definition = "see tools/event_path.py; the events and tests are in tools/house/event_paths.toml"
    for event in followed_events() if follow else ():
        label = f"files that a {event.name} passes through"
        rows.append(Row(label, definition, "", _passed(event)))
    return rows


def missed_goals(house: House) -> Iterator[str]:
    """Yield a sentence for every fact that stands twice."""
    for name in house.derived:
        yield (
            f"State.{name} can be computed from nodes and jobs: it belongs to FleetIndex, and into "
            "no snapshot (docs/decisions/107)"
        )
    for name, defaults in facts.differing_defaults(house.tree).items():
        told = ", ".join(f"{one.value} in {one.owner}" for one in defaults)
        yield f"the default of {name} is {told}: there is one class of settings, Settings"


# --- printing ------------------------------------------------------------------------------------


def table_lines(rows: Iterable[Row], columns: dict[str, list[str]]) -> Iterator[str]:
    """Yield the table as Markdown: a column for each tree, and the goals."""
    yield "| | " + " | ".join(columns) + " | goal |"
    yield "|---|" + "---|" * (len(columns) + 1)
    for number, row in enumerate(rows):
        values = (column[number] for column in columns.values())
        yield f"| {row.label} | " + " | ".join(values) + f" | {row.goal} |"


def _count_all(rows: list[Row], root: Path) -> list[str]:
    house = House(read_tree(root))
    return [row.count(house) for row in rows]


def _print_table(options: argparse.Namespace) -> None:
    rows = all_rows(follow=not options.static)
    columns = {}
    if options.against:
        with unpacked(options.root, options.against) as folder:
            columns[options.against] = _count_all(rows, folder)
    columns["this tree"] = _count_all(rows, options.root)
    if options.json:
        labelled = {
            name: dict(zip((row.label for row in rows), column, strict=True))
            for name, column in columns.items()
        }
        print(json.dumps(labelled, indent=2, ensure_ascii=False))
        return
    for line in table_lines(rows, columns):
        print(line)
    for row in rows if options.definitions else ():
        print(f"\n{row.label}: {row.definition}")


def _check(root: Path) -> int:
    sentences = list(missed_goals(House(read_tree(root))))
    for sentence in sentences:
        print(sentence)
    print(f"{len(sentences)} facts stand twice" if sentences else "Every fact stands once.")
    return 1 if sentences else 0


def _print_tests(root: Path, revision: str) -> int:
    with unpacked(root, revision) as folder:
        old = collect_tests(folder)
    rows = read_moves(root / "tools" / "test_moves")
    mapping = map_tests(old, collect_tests(root), rows, renamed_files(root, revision))
    for line in mapping_lines(mapping):
        print(line)
    return 1 if mapping.lost else 0


def mapping_lines(mapping: TestMapping) -> Iterator[str]:
    """Yield where every old test has gone, those that are lost last."""
    for old, new in mapping.moved.items():
        yield f"{old} -> {new}"
    for old, reason in mapping.removed.items():
        yield f"{old} removed: {reason}"
    for old in mapping.lost:
        yield f"{old} is LOST: give it a line in tools/test_moves/*.csv, or bring it back"
    yield (
        f"{len(mapping.unchanged)} tests are unchanged, {len(mapping.moved)} moved, "
        f"{len(mapping.removed)} removed with a reason, {len(mapping.lost)} lost; "
        f"{len(mapping.added)} are new."
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--against", metavar="REV", help="add the column of a revision")
    parser.add_argument("--json", action="store_true", help="print the table for machines")
    parser.add_argument("--definitions", action="store_true", help="say what each count means")
    parser.add_argument("--static", action="store_true", help="leave out what needs tests to run")
    parser.add_argument("--check", action="store_true", help="exit 1 where a fact stands twice")
    parser.add_argument("--tests", metavar="REV", help="show where each test of a revision went")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; this one by default")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Do what the options say; return the exit status."""
    options = _options(arguments)
    if options.tests:
        return _print_tests(options.root, options.tests)
    if options.check:
        return _check(options.root)
    _print_table(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
