import tomllib

import pytest

from everstep_common.toml_edit import Key, TomlConflictError, Value, with_values

_FILE = """\
# The agent.

#node = "gpu-0042"

controller = "unix:/run/c.sock"

[jobs]
runtime_folder = "/run/a"   # the unit makes it

#[tls]
#ca = "ca.pem"
"""


def test_keys_are_added_and_everything_else_stays() -> None:
    wanted: dict[Key, Value] = {
        ("", "node"): "gpu-1",
        ("jobs", "bulk_tls"): True,
        ("tls", "ca"): "/x/ca.pem",
    }
    made = with_values(_FILE, wanted)
    assert tomllib.loads(made) == {
        "controller": "unix:/run/c.sock",
        "node": "gpu-1",
        "jobs": {"runtime_folder": "/run/a", "bulk_tls": True},
        "tls": {"ca": "/x/ca.pem"},
    }
    kept = [line for line in _FILE.splitlines() if line]
    assert [line for line in made.splitlines() if line in kept] == kept


def test_what_is_there_already_changes_nothing() -> None:
    assert with_values(_FILE, {("", "controller"): "unix:/run/c.sock"}) == _FILE


def test_another_value_is_a_conflict_unless_it_is_the_shipped_one() -> None:
    wanted: dict[Key, Value] = {("", "controller"): "control:7433"}
    with pytest.raises(TomlConflictError, match=r"^controller is 'unix:/run/c.sock' already, and "):
        with_values(_FILE, wanted)
    made = with_values(_FILE, wanted, {("", "controller"): "unix:/run/c.sock"})
    assert tomllib.loads(made)["controller"] == "control:7433"
    assert made.count("controller") == _FILE.count("controller")


def test_a_conflict_in_a_table_names_table_and_key() -> None:
    with pytest.raises(TomlConflictError, match=r"^tls\.ca is 'a' already, and 'b' is needed"):
        with_values('[tls]\nca = "a"\n', {("tls", "ca"): "b"})


def test_an_empty_file_gets_all_of_it() -> None:
    made = with_values("", {("", "a"): 1, ("t", "b"): 'quote " and \\'})
    assert tomllib.loads(made) == {"a": 1, "t": {"b": 'quote " and \\'}}


@pytest.mark.parametrize("text", ['tls = { ca = "a" }\n', '"tls".ca = "a"\n', 'tls.ca = "a"\n'])
def test_a_table_that_is_written_in_another_way_is_no_place_to_add_to(text: str) -> None:
    with pytest.raises(TomlConflictError, match="no program can add to"):
        with_values(text, {("tls", "key"): "k"})


def test_several_keys_at_the_top_stand_together_above_the_tables() -> None:
    made = with_values("[t]\nx = 1\n", {("", "a"): 1, ("", "b"): 2})
    assert made == "a = 1\nb = 2\n\n[t]\nx = 1\n"
