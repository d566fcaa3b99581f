"""Paths: names of the things in a state; unique, the same at every step and in every process."""

import functools
import re

from everstep_common.printable import with_article
from everstep_common.shard_names import owner

# "/" joins, "[" begins a part of a tensor, "@" a group of ranks, "#" a key that is no string; what
# is no character alone (undecodable bytes of a file's name) can be in no message.
_ESCAPED = re.compile(r"[%/\[\]@#\x00-\x1f\x7f\ud800-\udfff]")
_TREE = "#tree"


class PathError(ValueError):
    """A key has no name that would stay the same."""


def join(path: str, key: object) -> str:
    """Return the path of what lies under a dict's key or a list's index. Raises PathError."""
    return _join_text(path, key) if type(key) is str else f"{path}/{word(key)}"


def tree(path: str) -> str:
    """Return the path of the shard that holds an object's structure."""
    return path + _TREE


def refuse_object_name(name: object) -> None:
    """Raise PathError for a name that could be taken for something else."""
    if not isinstance(name, str) or not name or _ESCAPED.search(name.replace("/", "")):
        raise PathError(f"{name!r} is no name for a part of the state")
    if owner(name + "/")[0] is not None:
        raise PathError(f"{name!r} is how the private parts of a rank are named")


def word(key: object) -> str:
    """Return one key's word in a path. Raises PathError when the key is none of the scalars."""
    if type(key) is str:
        return _escape(key)
    if key is None or type(key) in (bool, int, float, bytes):
        return "#" + _escape(repr(key))
    if type(key) is tuple:
        return "#(" + ",".join(map(word, key)) + ")"
    raise PathError(f"{key!r} is {with_article(type(key).__name__)}")


# A state has the same names after every step.
@functools.lru_cache(maxsize=131072)
def _join_text(path: str, key: str) -> str:
    return f"{path}/{_escape(key)}"


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
