"""Every benchmark can be asked for its help, and each program that it starts is there."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from harness.processes import BENCH
from harness.session import Benchmark

_PROGRAM = re.compile(r"\b(?:module_command|bench_rank)\(\s*\"([a-z_.]+)\"")
_FILE = re.compile(r"\bBENCH / \"([a-z_/.]+)\"|__file__\)\.with_name\(\"([a-z_.]+\.py)\"\)")


def _modules() -> dict[str, str]:
    """Return the module of each benchmark, by its name on the command line."""
    spec = importlib.util.spec_from_file_location("bench_main", BENCH / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    found: dict[str, str] = main.BENCHMARKS
    return found


@pytest.mark.parametrize("name", _modules())
def test_a_benchmark_says_what_it_measures_and_how_long_its_parts_take(name: str) -> None:
    benchmark = importlib.import_module(_modules()[name]).BENCHMARK
    assert isinstance(benchmark, Benchmark)
    told = benchmark.parser(name).format_help()
    assert benchmark.about.splitlines()[0] in told
    assert "It takes about" in told
    words = " ".join(told.split())
    for part in benchmark.parts if len(benchmark.parts) > 1 else ():
        assert part.name in words, part.name
    actions = benchmark.parser(name)._actions
    assert [one.dest for one in actions if not one.help] == []


@pytest.mark.parametrize("name", _modules())
def test_a_quick_run_has_options_that_are_there(name: str) -> None:
    benchmark = importlib.import_module(_modules()[name]).BENCHMARK
    assert isinstance(benchmark, Benchmark)
    given = vars(benchmark.options(name, ["--quick"] if benchmark.quick else []))
    assert {one: given[one] for one in benchmark.quick} == dict(benchmark.quick)
    typed = {one.dest for one in benchmark.parser(name)._actions}
    assert benchmark.quick.keys() <= typed


def test_every_program_that_a_benchmark_starts_is_there() -> None:
    assert str(BENCH) in sys.path
    found = set()
    for path in BENCH.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for module in _PROGRAM.findall(text):
            found.add(BENCH / Path(*module.split(".")).with_suffix(".py"))
        for of_bench, beside in _FILE.findall(text):
            found.add(BENCH / of_bench if of_bench else path.with_name(beside))
    assert len(found) > 10
    assert [path for path in sorted(found) if not path.is_file()] == []
