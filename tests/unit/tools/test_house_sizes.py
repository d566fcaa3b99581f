"""Lines by component, long functions, and functions of many ways."""

import ast
from pathlib import Path

import house_sizes as sizes
from unit.tools.small_tree import small_tree


def _complexity(text: str) -> int:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    return sizes.complexity(function)


def test_branches_and_what_mccabe_leaves_out_are_ways() -> None:
    assert _complexity("def f(): return 1") == 1
    assert _complexity("def f(a):\n if a: return 1\n for b in a: pass\n return 2") == 3
    assert _complexity("def f(a, b, c): return a and b or c") == 3
    assert _complexity("def f(a): return [b if b else 0 for b in a if b]") == 4
    assert _complexity("def f(a):\n match a:\n  case 1: pass\n  case _: pass") == 3


def test_functions_inside_a_function_have_ways_of_their_own() -> None:
    assert _complexity("def f(a):\n def g(b):\n  if b: pass\n return g") == 1


def test_lines_of_generated_files_do_not_count(tmp_path: Path) -> None:
    tree = small_tree(
        tmp_path,
        {
            "agent/everstep_agent/a.py": "x = 1\n" * 3,
            "proto/everstep_proto/generated/fleet_pb2.py": "x = 1\n",
            "tests/generated/x_pb2.py": "x = 1\n",
            "tests/test_a.py": "x = 1\n" * 2,
        },
    )
    found = sizes.lines_by_component(tree)
    assert (found["agent"], found["proto"], found["tests"]) == (3, 0, 2)


def test_long_functions_come_longest_first(tmp_path: Path) -> None:
    text = "".join(f"def f{lines}():\n" + "    x = 1\n" * lines for lines in (39, 40, 50))
    tree = small_tree(tmp_path, {"agent/everstep_agent/a.py": text})
    assert list(sizes.long_functions(tree).values()) == [51, 41]


def test_functions_of_many_ways_are_counted_by_component(tmp_path: Path) -> None:
    text = "def f(a):\n return " + " and ".join("a" * 9)
    files = {"agent/everstep_agent/a.py": text, "common/everstep_common/b.py": "def g(): pass"}
    assert sizes.complex_functions(small_tree(tmp_path, files)) == {"agent": 1}
