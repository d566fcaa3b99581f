"""Configuration files of agent and controller, read by their loaders."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import ConfigError, document, load
from everstep_controller.config.controller_config import ControllerConfig
from fuzz.choices import Choices
from fuzz.edits import edited
from fuzz.format import Format, Handler
from fuzz.shapes import FLOATS, NUMBERS, OTHER_TEXTS, TEXTS

_KINDS: tuple[type, ...] = (AgentConfig, ControllerConfig)
_KEYS = {kind: tuple(setting.key for setting in document(kind)) for kind in _KINDS}
_TYPES = {kind: {one.key: one.type for one in document(kind)} for kind in _KINDS}
_KEYS_MAX = 6
_WORDS = tuple(json.dumps(text, ensure_ascii=False) for text in (*TEXTS, *OTHER_TEXTS))
_ADDRESSES = ('"127.0.0.1:7431"', '"[::1]:0"', '"host:99999"', '":"', '"a:b:c"', '"0.0.0.0:1"')
_INTEGERS = tuple(map(str, (*NUMBERS, -1, -(2**63), 2**64, 10**400)))
_OTHERS = (
    "true", "false", "[]", "[1, 2]", '["a"]', "{}", "{a = 1}", '{a = "b"}', "1979-05-27",
    "07:32:00", "'''a\nb'''", "0x1f", "1_000", "[[[[[[[[]]]]]]]]", "[" * 3000 + "]" * 3000,
)  # fmt: skip


def _make(choices: Choices) -> tuple[type, bytes]:
    kind = choices.of(_KINDS)
    tops, tables = [], list[str]()
    for _ in range(1 + choices.below(_KEYS_MAX)):
        key = choices.of(_KEYS[kind])
        value = _value(_TYPES[kind][key], choices)
        if choices.rarely(12):
            key = choices.of((key + "x", key.upper(), "a.b.c", '"\\u0000"', key + ".x"))
        table, dot, name = key.rpartition(".")
        if dot and choices.below(2):
            tables += [f"[{table}]", f"{name} = {value}"]
        else:
            tops.append(f"{key} = {value}")
    text = "\n".join((*tops, *tables))
    return kind, edited(text.encode(errors="surrogatepass"), choices)


def _value(kind: str, choices: Choices) -> str:
    if choices.rarely(10):
        return choices.of(_OTHERS)
    if kind == "a whole number":
        return choices.of(_INTEGERS)
    if kind == "a number":
        return repr(choices.of(FLOATS)) if choices.below(2) else choices.of(_INTEGERS)
    if kind == "true or false":
        return choices.of(("true", "false"))
    if kind.startswith("one of"):
        return choices.of(kind.removeprefix("one of ").replace("'", '"').split(", "))
    if kind.startswith("a list"):
        return "[" + ", ".join(choices.of(_WORDS) for _ in range(choices.below(4))) + "]"
    return choices.of((*_WORDS, *_ADDRESSES * 2))


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    path = folder / "everstep.toml"

    async def handle(case: tuple[type, bytes]) -> None:
        kind, content = case
        path.write_bytes(content)
        try:
            load(kind, path)
        except ConfigError as error:
            str(error).encode()

    yield handle


CONFIGURATION = Format(
    _make,
    _world,
    ("everstep_common.config", "everstep_agent.config", "everstep_controller.config"),
    5000,
)
