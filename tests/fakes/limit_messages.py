"""Messages of launchers and trainers with each field at its limits, at others' limits and beyond.

They are JSON as a hostile process would write it: what no encoder makes is among them.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from everstep_common.frames import FrameError, decode, header
from everstep_common.hints import hints_of
from everstep_common.json_writers import message_writer_of
from everstep_common.launcher_messages import FROM_LAUNCHER
from everstep_common.rank_messages import FROM_TRAINER
from everstep_proto.record_codec import shape_of
from fakes.report_values import plain, samples_at_bounds

# Numbers at the limits of what counts, of floats, of SQLite and of protobuf; texts that end
# strings, lines and terminals' patience; and what is no value of any field.
ODD = (
    *("null", "true", "-1", "0", "1", "2147483647", "2147483648", "4294967296", "9007199254740993"),
    *("899999999999999999", "999999999999999999", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775809", "1" + "0" * 400, "1e400", "NaN", "-Infinity", "0.5"),
    *('""', '"\\u0000"', '"a\\u0000b"', '"a\\nb"', '"\\u001b[2J\\u0007"', '"\\ud800"', '"../../x"'),
    *('"' + "x" * 5000 + '"', '"' + "\\u00fc" * 5000 + '"', '"%s{0}"', '"-1"'),
    *("[]", "[[]]", "[null]", "[1,1]", "[" + "1," * 5000 + "1]", "{}", '{"a":"b"}', '{"a":null}'),
)
KNOWN = {kind.__name__: kind for kind in (*FROM_LAUNCHER, *FROM_TRAINER)}


@dataclass(frozen=True, slots=True)
class LimitCase:
    """One message, as the text of its frame."""

    name: str
    text: str

    @property
    def frame(self) -> bytes:
        """Return its frame."""
        body = self.text.encode(errors="surrogatepass")
        return header(len(body)) + body

    @property
    def is_readable(self) -> bool:
        """Return whether the agent can work with it, by the bounds of its fields."""
        try:
            decode(self.text.encode(errors="surrogatepass"), KNOWN)
        except FrameError:
            return False
        return True


def whole_cases(kind: type, seed: int, **known: object) -> list[LimitCase]:
    """Return cases of a kind in an order of this seed; the fields ``known`` are as they are."""
    base = {**_base(kind), **{name: json.dumps(value) for name, value in known.items()}}
    cases = list(_cases(kind, base))
    random.Random(f"{seed} {kind.__name__}").shuffle(cases)
    return cases


def _base(kind: type) -> dict[str, str]:
    """Return the fields of the least message of a kind, each as JSON."""
    fields = json.loads(message_writer_of(kind)(_least(kind)))
    return {name: json.dumps(value) for name, value in fields.items()}


def _least(kind: type) -> object:
    least = plain(kind)
    return replace(least, nodes_min=1) if hasattr(least, "nodes_min") else least


def _cases(kind: type, base: dict[str, str]) -> Iterator[LimitCase]:
    yield LimitCase(kind.__name__, _written(base))
    for name, hint in hints_of(kind).items():
        yield LimitCase(f"{kind.__name__} without {name}", _written({**base, name: ""}))
        shape = shape_of(hint)
        within = samples_at_bounds(shape.bound) if shape.bound is not None else []
        bounds = [json.dumps(_plain(value)) for value, _ in within]
        if shape.items:
            bounds = [f"[{value}]" for value in bounds] + [f"[{value},{value}]" for value in bounds]
        for value in dict.fromkeys((*bounds, *ODD)):
            label = f"{kind.__name__}.{name} = {value:.40}"
            yield LimitCase(label, _written({**base, name: value}))
    yield LimitCase(f"{kind.__name__} twice", _written(base)[:-1] + ',"type":"Join"}')
    yield LimitCase(f"{kind.__name__} and more", _written({**base, "other": "1"}))


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _written(fields: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items() if value) + "}"
