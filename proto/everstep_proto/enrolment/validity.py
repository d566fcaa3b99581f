"""Validity of a certificate: its serial and times, read without a library of certificates. Pure.

A daemon that only wants to know when its certificate ends need not hold such a library for it.
"""

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME, _TIME = 0x30, 0x02, 0xA0, 0x17, 0x18


class NoCertificateError(ValueError):
    """Bytes have no certificate that can be read."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Serial number of a certificate, and from when until when it counts, in Unix time."""

    serial: str
    since_s: float
    ends_s: float


def first_certificate(pem: bytes) -> bytes:
    """Return the DER of the first certificate in PEM. Raises NoCertificateError."""
    found = _PEM.search(pem)
    if found is None:
        raise NoCertificateError("no certificate")
    try:
        return base64.b64decode(found[1])
    except ValueError as error:
        raise NoCertificateError("not base64") from error


def all_certificates(pem: bytes) -> list[bytes]:
    """Return the DER of each certificate in PEM. Raises NoCertificateError."""
    return [first_certificate(found[0]) for found in _PEM.finditer(pem)]


def validity(pem: bytes) -> Validity:
    """Return it of the first certificate in PEM. Raises NoCertificateError."""
    try:
        return _validity(first_certificate(pem))
    except (IndexError, ValueError) as error:
        raise NoCertificateError(f"not a certificate: {error}") from error


def serial_text(serial: int) -> str:
    """Return a serial number as people read it: hexadecimal digits."""
    return f"{serial:x}"


def _validity(der: bytes) -> Validity:
    whole = _inside(der, 0, _SEQUENCE)[0]
    part = _inside(der, whole, _SEQUENCE)[0]
    if der[part] == _VERSION:
        part = _inside(der, part, _VERSION)[1]
    at, after = _inside(der, part, _INTEGER)
    serial = int.from_bytes(der[at:after], "big")
    algorithm_end = _inside(der, after, _SEQUENCE)[1]
    issuer_end = _inside(der, algorithm_end, _SEQUENCE)[1]
    times = _inside(der, issuer_end, _SEQUENCE)[0]
    since_s, second = _time(der, times)
    return Validity(serial_text(serial), since_s, _time(der, second)[0])


def _inside(der: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return where the content of an element begins and ends (X.690, 8.1)."""
    if der[at] != tag:
        raise ValueError(f"tag {der[at]:#x} where {tag:#x} is expected")
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin], "big")
    if begin + length > len(der):
        raise ValueError("it is cut off")
    return begin, begin + length


def _time(der: bytes, at: int) -> tuple[float, int]:
    """Return a time as Unix time, and where it ends (RFC 5280, 4.1.2.5)."""
    short = der[at] == _UTC_TIME
    begin, end = _inside(der, at, _UTC_TIME if short else _TIME)
    text = der[begin:end].decode("ascii")
    if short:
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp(), end
