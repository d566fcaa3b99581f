"""Token text: what an operator types on a node that joins. Pure.

It has an id, a secret, and the hash of the authority that the node trusts from then on, so that
nobody between the two is taken for the controller.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

_ID, _SECRET, _HASH = 8, 26, 52
_TEXT = re.compile(
    rf"everstep-([a-z2-7]{{{_ID}}})-([a-z2-7]{{{_SECRET}}})-([a-z2-7]{{{_HASH}}})", re.ASCII
)


class TokenError(ValueError):
    """A text is no token; one sentence, without what it is."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """The three parts of a token."""

    id: str
    secret: str
    authority: str

    def __str__(self) -> str:
        """Return what is typed."""
        return f"everstep-{self.id}-{self.secret}-{self.authority}"

    @property
    def secret_sha256(self) -> str:
        """Return all that the controller keeps of the secret."""
        return secret_sha256(self.secret)


def new_token(random: bytes, authority_der: bytes) -> TokenText:
    """Return the token of 21 random bytes and an authority's certificate."""
    return TokenText(_text(random[:5]), _text(random[5:21]), authority_hash(authority_der))


def read_token(text: str) -> TokenText:
    """Return the parts of a token. Raises TokenError."""
    stripped = "".join(text.split())
    found = _TEXT.fullmatch(stripped)
    if found is None:
        whole = len("everstep---") + _ID + _SECRET + _HASH
        raise TokenError(
            f"this is no whole token: it has {len(stripped)} characters, and one has {whole}, "
            "beginning with 'everstep-'; copy the line that 'everstep tokens make' has printed"
        )
    return TokenText(found[1], found[2], found[3])


def authority_hash(der: bytes) -> str:
    """Return the hash of an authority's certificate, as tokens have it."""
    return _text(hashlib.sha256(der).digest())


def secret_sha256(secret: str) -> str:
    """Return the hash of a secret, which has 128 random bits."""
    return hashlib.sha256(b"everstep token\n" + secret.encode()).hexdigest()


def _text(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
