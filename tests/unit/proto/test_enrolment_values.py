"""Tokens, requests and validity: what is typed, what is sent, and what is read of a certificate."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.enrolment.own_certificate import own_wanted, sign_with_key
from everstep_controller.enrolment.signer import Wanted, new_authority
from everstep_proto.enrolment.certificate_requests import (
    RequestError,
    is_proven,
    make_request,
    new_key,
    prove,
    read_request,
)
from everstep_proto.enrolment.token_text import (
    TokenError,
    authority_hash,
    new_token,
    read_token,
)
from everstep_proto.enrolment.validity import (
    NoCertificateError,
    Validity,
    all_certificates,
    serial_text,
    validity,
)
from everstep_proto.tls import Role, identity_of

_T0_S = 1_796_000_000


@given(st.binary(min_size=21, max_size=21), st.binary(max_size=50))
def test_a_token_is_read_as_it_was_made_whatever_a_mailer_did_to_its_line(
    random: bytes, authority: bytes
) -> None:
    token = new_token(random, authority)
    text = str(token)
    assert read_token(f" {text[:50]}\n  {text[50:]} ") == token
    assert token.authority == authority_hash(authority)
    assert token.secret not in token.secret_sha256


@pytest.mark.parametrize("cut", [0, 20, 96])
def test_half_a_token_is_told_so_without_being_shown(cut: int) -> None:
    text = str(new_token(b"r" * 21, b"authority"))[:cut]
    with pytest.raises(TokenError, match=f"it has {cut} characters, and one has 97") as caught:
        read_token(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("since_s", [_T0_S, 2_840_140_799, -100_000_000, 2_524_608_000])
def test_validity_is_what_the_library_of_certificates_says(since_s: int) -> None:
    authority, _ = new_authority("ca", since_s - 10, since_s + 900_000_000)
    wanted = Wanted(name="gpu-1", role=Role.AGENT, since_s=since_s, ends_s=since_s + 86_400)
    signed, pem = sign_with_key(authority, wanted)
    known = x509.load_pem_x509_certificate(pem)
    assert validity(pem) == Validity(
        serial_text(known.serial_number),
        known.not_valid_before_utc.timestamp(),
        known.not_valid_after_utc.timestamp(),
    )
    assert signed.serial == validity(pem).serial
    assert len(all_certificates(pem + pem)) == 2


@given(st.binary(max_size=300))
def test_what_is_no_certificate_has_no_validity(body: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(body) + b"\n-----END CERTIFICATE-----"
    with pytest.raises(NoCertificateError):
        validity(pem)
    with pytest.raises(NoCertificateError):
        validity(body)


def test_a_proof_is_of_one_key_and_one_request() -> None:
    key, other = new_key(), new_key()
    request = make_request(key, "gpu-1")
    public, elsewhere = (
        read_request(request.decode()),
        read_request(make_request(other, "x").decode()),
    )
    proof = prove(key, request)
    assert public.node == "gpu-1"
    assert is_proven(public.key, request.decode(), proof)
    assert not is_proven(elsewhere.key, request.decode(), proof)
    assert not is_proven(public.key, request.decode() + " ", proof)
    assert not is_proven(public.key, request.decode(), "00ff")
    assert not is_proven(object(), request.decode(), proof)


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END"])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        read_request(text)


def test_a_signed_certificate_ends_no_later_than_its_authority() -> None:
    authority, _ = new_authority("ca", _T0_S, _T0_S + 1000)
    wanted = own_wanted("control", ["control", "10.0.0.1", "::1"], _T0_S, 86_400.0)
    signed, pem = sign_with_key(authority, wanted)
    assert signed.ends_s == _T0_S + 1000
    known = x509.load_pem_x509_certificate(pem)
    who = identity_of(known)
    assert (who.name, who.role) == ("control", Role.OPERATOR)
    names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["control", "10.0.0.1", "::1"]
    begun = datetime.fromtimestamp(_T0_S, UTC) - timedelta(seconds=300)
    assert known.not_valid_before_utc == begun
