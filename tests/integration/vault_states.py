"""States that tell of every chunk which step it belongs to."""

CHUNKS = 6
_CHUNK_BYTES = 4096
STATE_BYTES = CHUNKS * _CHUNK_BYTES


def chunk_of(step: int, index: int) -> bytes:
    """Return one chunk of the state after a step."""
    return f"step {step} chunk {index} ".encode().ljust(32, b".") * (_CHUNK_BYTES // 32)


def state_of(step: int) -> bytes:
    """Return the whole state after a step."""
    return b"".join(chunk_of(step, index) for index in range(CHUNKS))
