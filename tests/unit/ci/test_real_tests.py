"""Where the tests with real servers are: `make test-real` looks for them nowhere else."""

import re
from pathlib import Path

_TESTS = Path(__file__).parents[2]
# Not in words: a decorator, or the marks of a file.
_MARK = re.compile(r"^(@|pytestmark = .*|    )pytest\.mark\.real\b", re.MULTILINE)


def test_tests_that_need_a_real_server_stand_in_one_folder() -> None:
    marked = {path for path in _TESTS.rglob("test_*.py") if _MARK.search(path.read_text())}
    assert len(marked) > 20
    assert {path.parent.name for path in marked} == {"real"}
