"""Certificates of open channels: what ends their calls."""

from datetime import UTC, datetime, timedelta

import trustme
from cryptography import x509

from everstep_proto.shown_certificates import trouble

_NOW = datetime.now(UTC)


def _loaded(pem: trustme.Blob) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.bytes())


def _issued(authority: trustme.CA) -> tuple[x509.Certificate, list[x509.Certificate]]:
    made = authority.issue_cert("localhost", common_name="ann", organization_unit_name="operator")
    first, *others = map(_loaded, made.cert_chain_pems)
    return first, [first, *others]


def test_a_certificate_of_the_authority_counts_until_it_ends() -> None:
    authority = trustme.CA()
    certificate, chain = _issued(authority)
    known = [_loaded(authority.cert_pem)]
    assert trouble(certificate, chain, known, _NOW) == ""
    late = certificate.not_valid_after_utc + timedelta(seconds=1)
    assert "the certificate ended at" in trouble(certificate, chain, known, late)


def test_one_of_an_authority_that_was_replaced_counts_no_more() -> None:
    certificate, chain = _issued(trustme.CA())
    known = [_loaded(trustme.CA().cert_pem)]
    assert "replaced" in trouble(certificate, chain, known, _NOW)
    assert "replaced" in trouble(certificate, chain, [], _NOW)


def test_one_that_an_intermediate_authority_has_issued_counts() -> None:
    root = trustme.CA()
    certificate, chain = _issued(root.create_child_ca())
    assert trouble(certificate, chain, [_loaded(root.cert_pem)], _NOW) == ""
    assert trouble(certificate, [], [_loaded(root.cert_pem)], _NOW) != ""


def test_one_that_is_trusted_itself_counts() -> None:
    certificate, _ = _issued(trustme.CA())
    assert trouble(certificate, [], [certificate], _NOW) == ""
