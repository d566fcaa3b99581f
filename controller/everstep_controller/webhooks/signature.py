"""Signature of a webhook: an HMAC over id, time and body, as Standard Webhooks has it.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md, there
"Signature scheme". Libraries in most languages verify it.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

_ENCODED = "whsec_"
# Standard Webhooks: 24 to 64 bytes.
_BYTES_MIN = 24


class SigningKeyError(ValueError):
    """A key cannot be used; the sentence says why, without the key."""


def signing_key(text: str) -> bytes:
    """Return the key that a file has. Raises SigningKeyError."""
    key = text.encode()
    if text.startswith(_ENCODED):
        try:
            key = base64.b64decode(text.removeprefix(_ENCODED), validate=True)
        except (binascii.Error, ValueError):
            raise SigningKeyError(f"what follows {_ENCODED} is not base64") from None
    if len(key) < _BYTES_MIN:
        raise SigningKeyError(
            f"expected a key of {_BYTES_MIN} bytes or more: 'openssl rand -base64 32' makes one"
        )
    return key


def signed_headers(key: bytes, event_id: str, at_s: int, body: bytes) -> Mapping[str, str]:
    """Return the headers by which a receiver knows who sent an event, and when.

    >>> headers = signed_headers(b"k" * 24, "c/7/1", 1700000000, b"{}")
    >>> headers["webhook-signature"]
    'v1,qHai6dcA2O87DC7dxPgMvQGz1PCWAy0q3FtQQYmddvQ='
    """
    signed = f"{event_id}.{at_s}.".encode() + body
    code = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{code}",
    }
