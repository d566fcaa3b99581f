"""A connection joins a transfer with a token of that transfer, once."""

import pytest

from everstep_agent.vault.replication.transfer_registry import ServedTransfer, TransferRegistry
from everstep_agent.vault.snapshots.copies import CopyKey
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.messages import JOINED_STREAMS_MAX, JoinTransfer, transfer_token

KEY = b"k" * 32
COPY = CopyKey(1, 2, 3)


async def _move(wire: BulkConnection) -> None:
    raise AssertionError(f"nothing moves over {wire}")


def _open(copy: CopyKey = COPY, job: str = "demo") -> tuple[TransferRegistry, ServedTransfer]:
    transfers, transfer = TransferRegistry(), ServedTransfer(job, copy, _move)
    transfers.open(transfer)
    return transfers, transfer


def _join(
    transfer: ServedTransfer,
    number: int = 1,
    copy: CopyKey = COPY,
    key: bytes = KEY,
    job: str = "demo",
) -> JoinTransfer:
    token = transfer_token(key, job, copy, (transfer.nonce, number))
    return JoinTransfer(transfer.nonce, number, token)


def test_a_token_opens_its_transfer() -> None:
    transfers, transfer = _open()
    assert transfers.find("demo", KEY, _join(transfer)) is transfer
    assert transfers.find("demo", KEY, _join(transfer, 2)) is transfer


def test_a_token_that_was_used_opens_nothing() -> None:
    transfers, transfer = _open()
    join = _join(transfer)
    transfers.find("demo", KEY, join)
    with pytest.raises(BulkError, match="used before"):
        transfers.find("demo", KEY, join)


@pytest.mark.parametrize(
    "foreign",
    [
        {"copy": CopyKey(2, 2, 3)},
        {"copy": CopyKey(1, 0, 3)},
        {"copy": CopyKey(1, 2, 4)},
        {"key": b"x" * 32},
        {"job": "other"},
    ],
)
def test_a_token_of_another_generation_rank_step_key_or_job_opens_nothing(
    foreign: dict[str, object],
) -> None:
    transfers, transfer = _open()
    with pytest.raises(BulkError, match="another transfer"):
        transfers.find("demo", KEY, _join(transfer, **foreign))  # type: ignore[arg-type]


def test_a_token_for_another_number_opens_nothing() -> None:
    transfers, transfer = _open()
    join = _join(transfer, 1)
    with pytest.raises(BulkError, match="another transfer"):
        transfers.find("demo", KEY, JoinTransfer(join.nonce, 2, join.token))


def test_a_job_cannot_join_the_transfer_of_another_that_has_the_same_key() -> None:
    transfers, transfer = _open()
    with pytest.raises(BulkError, match="another transfer"):
        transfers.find("other", KEY, _join(transfer, job="other"))


def test_a_token_of_a_transfer_that_is_over_opens_nothing() -> None:
    transfers, transfer = _open()
    transfers.close(transfer)
    with pytest.raises(BulkError, match="over"):
        transfers.find("demo", KEY, _join(transfer))
    assert not len(transfers)


@pytest.mark.parametrize("number", [-1, 0, JOINED_STREAMS_MAX + 1])
def test_the_connections_of_a_transfer_are_counted(number: int) -> None:
    transfers, transfer = _open()
    with pytest.raises(BulkError):
        transfers.find("demo", KEY, _join(transfer, number))
