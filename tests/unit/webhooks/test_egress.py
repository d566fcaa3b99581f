"""Where webhooks may send: named hosts, and addresses of networks behind their names."""

import pytest

from everstep_controller.webhooks.egress import EgressError, Target, refused_address, target_of

HOSTS = ("hooks.example.org", "127.0.0.1", "::1")


def test_a_url_is_taken_apart_as_a_request_needs_it() -> None:
    target = target_of("https://Hooks.Example.org./services/T0/secret?x=1", HOSTS)
    assert target == Target("hooks.example.org", 443, "/services/T0/secret?x=1", True)
    assert target.named == "hooks.example.org"
    assert target_of("https://hooks.example.org:8443", HOSTS).named == "hooks.example.org:8443"
    assert target_of("http://[::1]:9/x", HOSTS).named == "[::1]:9"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://other.example.org/secret", "is not among its hosts"),
        ("https://hooks.example.org.evil.net/secret", "is not among its hosts"),
        ("http://hooks.example.org/secret", "expected https://"),
        ("ftp://hooks.example.org/secret", "expected https://HOST"),
        ("hooks.example.org/secret", "expected https://HOST"),
        ("https://user:word@hooks.example.org/secret", "a user name or a fragment"),
        ("https://hooks.example.org/secret#part", "a user name or a fragment"),
        ("https://hooks.example.org/sec ret", "without blanks"),
        ("https://hooks.example.org/\r\nX: secret", "without blanks"),
        ("https://hooks.example.org/gehe\u00ef\u006d", "of ASCII"),
        ("https://hooks.example.org:99999/secret", "no URL in it"),
        ("https://[::1/secret", "no URL in it"),
        ("https://hooks.example.org/" + "s" * 5000, "up to 4096"),
    ],
)
def test_what_is_no_url_of_a_named_host_is_refused_without_its_path(url: str, said: str) -> None:
    with pytest.raises(EgressError, match=said) as caught:
        target_of(url, HOSTS)
    assert "secret" not in str(caught.value)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "this machine"),
        ("127.8.8.8", "this machine"),
        ("::1", "this machine"),
        ("::ffff:127.0.0.1", "this machine"),
        ("64:ff9b::7f00:1", "this machine"),
        ("169.254.169.254", "its link"),
        ("::ffff:169.254.169.254", "its link"),
        ("fe80::1%eth0", "its link"),
        ("fd00:ec2::254", "metadata service"),
        ("100.100.100.200", "metadata service"),
        ("fd20:ce::254", "metadata service"),
        ("168.63.129.16", "metadata service"),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "this machine"),  # Teredo: 127.0.0.1
        ("0.0.0.0", "no address"),
        ("0.1.2.3", "no address"),
        ("::", "no address"),
        ("224.0.0.1", "many machines"),
        ("240.0.0.1", "reserved"),
    ],
)
def test_a_name_that_resolves_to_what_is_no_network_is_refused(address: str, kind: str) -> None:
    target = Target("hooks.example.org", 443, "/secret", True)
    said = refused_address(target, address)
    assert kind in said
    assert "hooks.example.org resolves to" in said
    assert "secret" not in said


@pytest.mark.parametrize("address", ["93.184.216.34", "10.1.2.3", "2606:2800:220:1::1", "fd12::7"])
def test_addresses_of_networks_private_ones_among_them_are_taken(address: str) -> None:
    assert not refused_address(Target("hooks.example.org", 443, "/", True), address)


def test_an_address_that_is_named_itself_is_what_the_operator_wants() -> None:
    target = target_of("http://127.0.0.1:8080/relay", HOSTS)
    assert not refused_address(target, "127.0.0.1")
    assert not target.encrypted


def test_what_a_receiver_repeats_of_the_path_is_not_shown() -> None:
    target = target_of("https://hooks.example.org/services/T0/Abc123?token=xyz789", HOSTS)
    said = "Cannot POST /services/T0/Abc123?token=xyz789: Abc123 is unknown, and so is xyz789"
    assert target.redacted(said) == "Cannot POST …: … is unknown, and so is …"
    assert target_of("https://hooks.example.org", HOSTS).redacted("a/b") == "a/b"
