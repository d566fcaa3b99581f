"""The counts of the house, each on a tree that is small enough to count by hand."""

from pathlib import Path

import pytest

import house_counts as counts
from unit.tools.small_tree import small_tree

_AGENT = "agent/everstep_agent"
_CORE = "controller/everstep_controller/core"


def test_a_small_file_counts_when_exactly_one_other_imports_it(tmp_path: Path) -> None:
    more = "x = 1\n" * 60
    tree = small_tree(
        tmp_path,
        {
            f"{_AGENT}/lonely.py": "A = 1\n",
            f"{_AGENT}/shared.py": "B = 1\n",
            f"{_AGENT}/long.py": more,
            f"{_AGENT}/one.py": "from everstep_agent import lonely, shared, long\n"
            + "x = 1\n" * 60,
            f"{_AGENT}/two.py": "def f():\n    import everstep_agent.shared\n" + more,
        },
    )
    assert [file.path for file in counts.small_files(tree)] == [f"{_AGENT}/lonely.py"]


def test_generated_files_and_files_of_no_component_are_left_out(tmp_path: Path) -> None:
    tree = small_tree(
        tmp_path,
        {
            "proto/everstep_proto/generated/fleet_pb2.py": "",
            "tests/test_x.py": "",
            "common/everstep_common/clock.py": "",
        },
    )
    assert [file.module for file in tree.files] == ["everstep_common.clock"]


def test_the_sizes_are_those_of_nine_in_ten(tmp_path: Path) -> None:
    tree = small_tree(tmp_path, {f"{_AGENT}/m{n}.py": "x = 1\n" * n for n in range(1, 11)})
    assert counts.sizes(tree.files) == counts.Sizes(files=10, median=5.5, p90=10, longest=10)


def test_folders_that_import_each_other_are_a_pair_also_when_one_is_inside_the_other(
    tmp_path: Path,
) -> None:
    tree = small_tree(
        tmp_path,
        {
            f"{_AGENT}/main.py": "from everstep_agent.work.item import Item\n",
            f"{_AGENT}/work/item.py": "from everstep_agent.clock import now\n",
            f"{_AGENT}/clock.py": "",
            f"{_AGENT}/vault/slots.py": "from everstep_agent.work.item import Item\n",
        },
    )
    assert counts.mutual_folders(tree) == [("everstep_agent", "everstep_agent.work")]


def test_packages_of_the_core_are_in_a_circle_over_a_third_one(tmp_path: Path) -> None:
    start = "from everstep_controller.core"
    tree = small_tree(
        tmp_path,
        {
            f"{_CORE}/jobs/a.py": f"{start}.nodes.b import x\n",
            f"{_CORE}/nodes/b.py": f"{start}.vault.c import x\n",
            f"{_CORE}/vault/c.py": f"{start}.jobs.a import x\n",
            f"{_CORE}/fleet/d.py": f"{start}.jobs.a import x\n",
        },
    )
    assert counts.mutual_folders(tree) == []
    assert counts.core_circles(tree) == [
        f"everstep_controller.core.{name}" for name in ("jobs", "nodes", "vault")
    ]


def test_a_class_name_may_be_used_by_agent_and_controller_but_not_beside_common(
    tmp_path: Path,
) -> None:
    tree = small_tree(
        tmp_path,
        {
            f"{_AGENT}/a.py": "class Same: ...\nclass Shared: ...\nclass _Own: ...\n",
            f"{_AGENT}/b.py": "class Twice: ...\nclass _Own: ...\n",
            f"{_AGENT}/c.py": "class Twice: ...\n",
            "controller/everstep_controller/a.py": "class Same: ...\n",
            "common/everstep_common/a.py": "class Shared: ...\n",
        },
    )
    assert counts.classes_named_twice(tree) == {
        "Shared": [f"{_AGENT}/a.py", "common/everstep_common/a.py"],
        "Twice": [f"{_AGENT}/b.py", f"{_AGENT}/c.py"],
    }


@pytest.mark.parametrize(
    ("caption", "counted"),
    [
        ("What a node says of itself.", True),
        ("Who hangs.", True),
        ("Node liveness: what silence means.", False),
        ("Whatever the kernel says.", False),
        ("", False),
    ],
)
def test_a_caption_names_the_thing_first(tmp_path: Path, caption: str, counted: bool) -> None:
    tree = small_tree(tmp_path, {f"{_AGENT}/a.py": f'"""{caption}"""\n' if caption else "\n"})
    assert bool(counts.captions_without_thing(tree)) == counted


def test_only_methods_count_as_bare_verbs(tmp_path: Path) -> None:
    text = "def take(): ...\nclass Queue:\n    def take(self): ...\n    def take_event(self): ...\n"
    tree = small_tree(tmp_path, {f"{_AGENT}/a.py": text})
    assert counts.bare_verbs(tree) == [f"{_AGENT}/a.py: Queue.take"]


def test_a_large_folder_has_more_than_fifteen_files_of_its_own(tmp_path: Path) -> None:
    files = {f"{_AGENT}/probes/p{number}.py": "" for number in range(16)}
    files |= {f"{_AGENT}/a{number}.py": "" for number in range(15)}
    tree = small_tree(tmp_path, files | {f"{_AGENT}/__init__.py": "", f"{_AGENT}/b/c.py": ""})
    assert counts.large_folders(tree) == {"everstep_agent.probes": 16}


_RECORD = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Spec:
    name: str
    nodes: int

@dataclass
class Death:
    rank: int

@dataclass
class JobRecord:
    spec: Spec
    reason: str
    past: Spec | None
    deaths: list[Death]
"""


def test_the_fields_of_the_jobs_record_are_counted_alone_and_with_its_values(
    tmp_path: Path,
) -> None:
    found = counts.record_fields(small_tree(tmp_path, {f"{_CORE}/model/job.py": _RECORD}))
    assert found.own == ("spec", "reason", "past", "deaths")
    assert found.by_class == {"JobRecord": 4, "Spec": 2}
    assert found.all_together == 5


def test_a_core_without_a_record_has_no_fields_of_it(tmp_path: Path) -> None:
    found = counts.record_fields(small_tree(tmp_path, {f"{_CORE}/core.py": ""}))
    assert (found.own, found.all_together) == ((), 0)


def test_write_sites_are_assignments_deletions_and_changing_calls_below_a_field(
    tmp_path: Path,
) -> None:
    writer = """
def write(job, other, new: JobRecord):
    job.reason = "x"
    job.reason, other.reason = "a", "b"
    job.deaths.append(1)
    job.spec.nodes += 1
    del job.deaths[0]
    new.past = None
    print(job.reason, job.deaths.index(1))
    job.unknown = 1
    job = other
"""
    tree = small_tree(
        tmp_path, {f"{_CORE}/model/job.py": _RECORD, f"{_CORE}/jobs/ending.py": writer}
    )
    assert dict(counts.job_write_sites(tree)) == {f"{_CORE}/jobs/ending.py": 6}


def test_generated_files_do_not_count_in_an_addition() -> None:
    patch = "".join(
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"
        for path in (
            "proto/fleet.proto",
            "proto/everstep_proto/generated/fleet_pb2.py",
            "docs/signals.md",
            "tests/unit/core/test_x.py",
        )
    )
    assert counts.files_of_addition(patch) == ["proto/fleet.proto", "tests/unit/core/test_x.py"]
