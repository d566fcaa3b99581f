"""Bulk transfer messages between agents: one request for each connection.

Put:       PutCopy → SendStripes → stripes, over this connection and others →
           CopyStored | HashMismatch.
Get:       GetCopy → CopyOffer → SendStripes → stripes, over this connection and others →
           CopyStored | HashMismatch.
Join:      JoinTransfer → TransferJoined → stripes. One more connection for a transfer that another
           one began.
Manifests: GetManifests → ManifestReply | Refusal, for each of the copies.
Words:     TellSteps → AllSteps. What members of a generation have, while no controller is there.
A Refusal may take the place of every answer.
"""

import hmac
from dataclasses import dataclass

from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.snapshots.member_words import StepWord
from everstep_common.rank_messages import Entry

# Version of these messages; since 2 a copy is sent in stripes.
PROTOCOL = 2
# Connections of one transfer besides the first; more than any network needs.
JOINED_STREAMS_MAX = 15


@dataclass(frozen=True, slots=True)
class PutCopy:
    """The client wants to store a replica here."""

    copy: CopyRef
    entries: tuple[Entry, ...]
    # An agent from before stripes sends no version, and would take stripe numbers for contents.
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class GetCopy:
    """The client wants this copy from here."""

    copy: CopyRef


@dataclass(frozen=True, slots=True)
class JoinTransfer:
    """Connection ``number`` of the transfer that the nonce names; the token opens it once."""

    nonce: bytes
    number: int
    token: bytes


@dataclass(frozen=True, slots=True)
class GetManifests:
    """The client wants to know what is in these copies."""

    copies: tuple[CopyRef, ...]


@dataclass(frozen=True, slots=True)
class TellSteps:
    """The client is the member of this index, and this is its word and that of all below it.

    The first member tells nobody but the spare that keeps its replicas, where it is the only one.
    An agent from before these words refuses it, and so frees nothing, nor does anybody else.
    """

    number: int
    word: StepWord


@dataclass(frozen=True, slots=True)
class AllSteps:
    """Answer to TellSteps: the word of all members; None while one of them has said nothing."""

    word: StepWord | None


@dataclass(frozen=True, slots=True)
class SendStripes:
    """Send the stripes, but for those that are ``present`` since an earlier attempt (a bitmap)."""

    present: bytes = b""
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class TransferJoined:
    """Answer to JoinTransfer: this connection takes part in the transfer."""


@dataclass(frozen=True, slots=True)
class CopyStored:
    """The copy is here, verified, with this hash."""

    root_hash: bytes


@dataclass(frozen=True, slots=True)
class CopyOffer:
    """The copy is here; further connections may join under the nonce."""

    copy: CopyRef
    entries: tuple[Entry, ...]
    nonce: bytes


@dataclass(frozen=True, slots=True)
class ManifestReply:
    """Answer to GetManifests: the contents of one copy."""

    copy: CopyRef
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class HashMismatch:
    """The bytes that came do not have the hash that was announced."""

    root_hash: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """No; one sentence why."""

    reason: str


def transfer_token(
    transfer_key: bytes, lineage: str, key: CopyKey, join: tuple[bytes, int]
) -> bytes:
    """Return what proves the right to one connection of one transfer of one copy.

    ``join`` is the nonce that the server gave to this transfer, and the connection's number.
    """
    nonce, number = join
    bound = f"{number}|{key.generation}|{key.rank}|{key.step}|{lineage}".encode()
    return hmac.digest(transfer_key, b"transfer|" + nonce + bound, "sha256")
