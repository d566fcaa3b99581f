"""Enrolment values: tokens by which nodes join, and the certificates that were signed for them.

Of a secret only its hash is here. Times with ``_s`` are Unix time, by which certificates count.
"""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Token of an operator: whoever has its secret may enrol nodes of these names."""

    id: str
    secret_sha256: str
    # As people read it: one name, a list such as gpu-[0001-0512], or a pattern with "*".
    names: str
    # The names themselves; none of a pattern.
    nodes: tuple[str, ...]
    # How many nodes may enrol by it; 0: each that it names.
    uses_max: int
    made_ns: int
    until_ns: int
    operator: str
    reason: str = ""

    @property
    def exact(self) -> bool:
        """Whether it is for one name alone, which an operator has chosen."""
        return len(self.nodes) == 1

    def names_node(self, node: str) -> bool:
        """Return whether it is for a node."""
        return node in self.nodes or ("*" in self.names and fnmatch.fnmatchcase(node, self.names))


@dataclass(slots=True)
class TokenRecord:
    """A token, and what became of it."""

    token: Token
    # By the names of nodes: the hash of the key that each has enrolled.
    used: dict[str, str] = field(default_factory=dict)
    # The operator who revoked it; "" while nobody has.
    revoked_by: str = ""

    @property
    def used_up(self) -> bool:
        """Whether no other node may enrol by it."""
        return bool(self.token.uses_max) and len(self.used) >= self.token.uses_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Certificate of a node's agent that was signed here; what it was renewed from is with it."""

    serial: str
    ends_s: int
    # Of the public key.
    key_sha256: str
    signed_ns: int
    # The token of its enrolment, or "pod/" and the uid of the pod that enrolled.
    token: str
    # Those that it was renewed from, oldest first; they may still be shown on open streams.
    before: tuple[str, ...] = ()

    def covers(self, serial: str) -> bool:
        """Return whether a serial is its own, or one that it was renewed from."""
        return serial == self.serial or serial in self.before


@dataclass(frozen=True, slots=True)
class Revocation:
    """What counts no more: certificates of a name that begin at this time or earlier, or one."""

    # Unix time of the order; a certificate of a node that begins after it is a new one.
    at_s: int
    operator: str
    reason: str


@dataclass(slots=True)
class Enrolment:
    """All tokens, certificates and revocations."""

    tokens: dict[str, TokenRecord] = field(default_factory=dict)
    # By the names of nodes.
    certificates: dict[str, Certificate] = field(default_factory=dict)
    revoked_nodes: dict[str, Revocation] = field(default_factory=dict)
    revoked_serials: dict[str, Revocation] = field(default_factory=dict)

    def revocation(self, name: str, serial: str, since_s: float) -> Revocation | None:
        """Return what revokes a certificate, by its holder, serial and beginning; or None."""
        of_node = self.revoked_nodes.get(name)
        if of_node is not None and since_s <= of_node.at_s:
            return of_node
        return self.revoked_serials.get(serial)


def pod_mark(uid: str) -> str:
    """Return what stands for a token where a pod has enrolled."""
    return f"pod/{uid}"


def kubernetes_name_problem(node: str) -> str:
    """Return why no certificate is signed for a node of Kubernetes; "" for nothing.

    Names there may have dots; a certificate's common name has 64 characters at most (RFC 5280).
    """
    if len(node) <= _COMMON_NAME_MAX and all(map(_is_name, node.split("."))):
        return ""
    return (
        f"node {node!r:.80} cannot be enrolled: a certificate names up to {_COMMON_NAME_MAX} "
        "characters; enrol it by a token under a shorter name, with an agent outside of Kubernetes"
    )


_COMMON_NAME_MAX = 64


def names_problem(names: str, nodes: Sequence[str]) -> str:
    """Return what is wrong with the names of a token; "" for nothing."""
    if nodes:
        return next(filter(None, map(node_name_problem, nodes)), "")
    if "*" not in names:
        return f"{names!r:.80} names no node; expected gpu-0042, 'gpu-[0001-0512]' or 'gpu-*'"
    strange = set(names) - _LETTERS - {"*"}
    return f"{names!r:.80}: a pattern has small letters, digits, '-' and '*'" if strange else ""


def node_name_problem(node: str) -> str:
    """Return why no certificate is signed for a name, with one that would do; "" for nothing."""
    if _is_name(node):
        return ""
    first = node.split(".")[0].lower().replace("_", "-")
    better = "".join(c for c in first if c in _LETTERS).strip("-")[:63]
    hint = f"; type --node {better}" if _is_name(better) else ""
    return (
        f"{node!r:.80} cannot be enrolled: a node's name has up to 63 small letters, digits and "
        f"'-', and no dots{hint}"
    )


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 63 and _LETTERS.issuperset(text) and text == text.strip("-")
