"""Which variables go with a job to its bucket: credentials and proxies, and nothing else."""

import pytest

from everstep_common.launcher_messages import Join
from everstep_common.storage_environment import (
    VARIABLES_MAX,
    credentials,
    environment_problem,
    variable_problem,
)

_HOSTILE = [
    "a=b",
    "",
    "AWS_A=B",
    "AWS_A\0",
    "AWS_\u0660",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "GCONV_PATH",
    "MALLOC_CHECK_",
    "PATH",
    "\ud800",
    "AWS_" + "A" * 200,
    "AWS_X\nFOO",
    "\N{LATIN SMALL LETTER LONG S}SL",
]


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_variable_of_another_name_is_refused_and_not_taken_along(name: str) -> None:
    assert variable_problem(name, "1")
    assert environment_problem({"AWS_PROFILE": "me", name: "1"})
    assert credentials({"AWS_PROFILE": "me", name: "1"}) == {"AWS_PROFILE": "me"}


@pytest.mark.parametrize("value", ["a\0b", "x" * 16_385, "\ud800"])
def test_a_value_that_cannot_be_one_is_refused_and_not_repeated(value: str) -> None:
    problem = environment_problem({"AWS_SECRET_ACCESS_KEY": value})
    assert "AWS_SECRET_ACCESS_KEY" in problem
    assert value not in problem


@pytest.mark.parametrize(
    "name",
    ["AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "HOME", "https_proxy", "HTTP_PROXY", "no_proxy"],
)
def test_credentials_and_proxies_go_along(name: str) -> None:
    assert not environment_problem({name: "x" * 5000})
    assert credentials({name: "x"}) == {name: "x"}


def test_more_variables_than_a_job_can_need_are_refused() -> None:
    many = {f"AWS_V{number}": "1" for number in range(VARIABLES_MAX + 1)}
    assert environment_problem(many)
    assert not environment_problem(credentials(many))


def test_a_launcher_is_refused_for_them_as_for_its_other_fields() -> None:
    wanted = Join(
        protocol=1,
        version="0",
        job="j",
        token="t",
        nodes_min=1,
        nodes_max=1,
        processes_per_node=1,
        reform=False,
        restarts_max=1,
        free_port=1,
        environment={"a=b": "1"},
    )
    (problem,) = wanted.problems()
    assert "'a=b'" in problem
