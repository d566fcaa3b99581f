"""Variables in a configuration: ``${NAME}`` in a text is what the environment has under that name.

For one file that many nodes share, as in a ConfigMap: a pod is told its node's name and address in
variables.
"""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")


def with_variables(
    tables: Mapping[str, object], environ: Mapping[str, str], problems: list[str]
) -> dict[str, object]:
    """Return tables with their variables replaced; ``problems`` gets a line for each not set.

    >>> with_variables({"liveness_address": "${HOST_IP}:7437"}, {"HOST_IP": "10.0.0.1"}, [])
    {'liveness_address': '10.0.0.1:7437'}
    """
    return {key: _replaced(value, key, environ, problems) for key, value in tables.items()}


def _replaced(value: object, path: str, environ: Mapping[str, str], problems: list[str]) -> object:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _told(found[1], path, environ, problems), value)
    if isinstance(value, dict):
        return {
            key: _replaced(inner, f"{path}.{key}", environ, problems)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [
            _replaced(inner, f"{path}[{place}]", environ, problems)
            for place, inner in enumerate(value)
        ]
    return value


def _told(name: str, path: str, environ: Mapping[str, str], problems: list[str]) -> str:
    if name in environ:
        return environ[name]
    problems.append(f"{path}: the environment has no variable {name}, which ${{{name}}} stands for")
    return ""
