"""Signature of webhooks: its key, and the example of Standard Webhooks."""

import base64

import pytest

from everstep_controller.webhooks.signature import SigningKeyError, signed_headers, signing_key


def test_the_example_of_standard_webhooks_is_signed_as_there() -> None:
    """libraries/python/tests/test_webhooks.py of standard-webhooks, test_sign_function."""
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    headers = signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_key_is_text_or_base64() -> None:
    assert signing_key("k" * 24) == b"k" * 24
    assert signing_key("whsec_" + base64.b64encode(b"x" * 32).decode()) == b"x" * 32


@pytest.mark.parametrize("text", ["short", "k" * 23, "whsec_AAAA", "whsec_no base64!"])
def test_a_key_that_is_short_or_broken_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SigningKeyError) as caught:
        signing_key(text)
    assert text not in str(caught.value)
