"""Job ids: what tells the jobs of one name apart, made of the name and a number that grows."""

import hashlib

# As many digits as a generation or a step may have.
_DIGITS_MAX = 18


def job_id_of(name: str, number: int) -> str:
    """Return the id of the job of a name that began with the event of this number."""
    return f"{name}-{number}"


def number_of_job(job_id: str, name: str) -> int | None:
    """Return the number in the id of a job of this name; None where it is no such id."""
    prefix, _, number = job_id.rpartition("-")
    digits = number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX
    return int(number) if prefix == name and digits else None


def token_hash(token: str) -> str:
    """Return what is kept and sent of a job token."""
    return hashlib.sha256(token.encode()).hexdigest()
