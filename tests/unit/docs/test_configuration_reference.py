"""The configuration reference is what the configuration classes say, and the examples are valid."""

import re
import tomllib
from pathlib import Path

import pytest
from generate_reference import REFERENCE, reference

from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import SettingDoc, document, load
from everstep_controller.config.controller_config import ControllerConfig

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES: list[tuple[str, type]] = [
    ("agent.toml", AgentConfig),
    ("controller.toml", ControllerConfig),
]


def _keys(table: dict[str, object], prefix: str = "") -> set[str]:
    keys: set[str] = set()
    for key, value in table.items():
        keys |= _keys(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return keys


def _uncommented(text: str) -> str:
    """Return the example with every commented setting switched on ("#key = value", no space)."""
    lines = [
        line[1:] if line.startswith("#") and line[1:2] not in (" ", "") else line
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def test_regenerating_the_reference_changes_nothing() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run `make reference`"


@pytest.mark.parametrize("kind", [kind for _, kind in EXAMPLES])
def test_every_setting_says_what_it_does_and_every_quantity_its_unit(kind: type) -> None:
    def unclear(doc: SettingDoc) -> bool:
        # Whole numbers are mostly counts and ports; a fraction is always of something.
        quantity = doc.type == "a number" and not doc.key.endswith(("_ratio", "_share"))
        return not doc.help or (quantity and not doc.unit)

    assert [doc.key for doc in document(kind) if unclear(doc)] == []


@pytest.mark.parametrize(("name", "kind"), EXAMPLES)
def test_the_example_loads_as_it_is_installed(name: str, kind: type) -> None:
    assert isinstance(load(kind, ROOT / "systemd" / name), kind)


@pytest.mark.parametrize(("name", "kind"), EXAMPLES)
def test_the_example_names_only_settings_that_exist(name: str, kind: type) -> None:
    text = (ROOT / "systemd" / name).read_text(encoding="utf-8")
    known = "|".join(re.escape(doc.key).replace("NAME", r"\w+") for doc in document(kind))
    keys = _keys(tomllib.loads(_uncommented(text)))
    assert [key for key in keys if not re.fullmatch(known, key)] == []
