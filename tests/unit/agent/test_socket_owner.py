"""Whose the other end of a connection is: what the kernel is asked, answers, and is believed."""

import errno
import struct

import pytest

from everstep_agent.ipc.socket_owner import (
    Origin,
    SocketAddress,
    SocketOwner,
    decode_answer,
    decode_route,
    encode_request,
    encode_route_request,
    origin_of,
)

_AGENT, _ROOT, _OTHER = 990, 0, 65534
_ESTABLISHED, _SYN_SENT, _FIN_WAIT, _TIME_WAIT, _CLOSE_WAIT, _LISTEN = 1, 2, 4, 6, 8, 10
_HEADER = struct.Struct("=IHHII")


def _answer(state: int, uid: int, inode: int = 7) -> bytes:
    """Return what the kernel says of a socket: nlmsghdr and inet_diag_msg."""
    message = struct.pack("=BBBB48xIIIII", 2, state, 0, 0, 0, 0, 0, uid, inode)
    return _HEADER.pack(16 + len(message), 20, 0, 1, 0) + message


def _error(code: int) -> bytes:
    return _HEADER.pack(36, 2, 0, 1, 0) + struct.pack("=i", -code) + bytes(16)


def test_a_request_names_both_ends_and_the_interface() -> None:
    told = encode_request(("10.0.0.1", 40000), ("10.0.0.2", 7436), 3, 9)
    length, kind, flags, sequence, _, family, protocol = struct.unpack_from("=IHHIIBB", told)
    assert (length, kind, flags, sequence) == (len(told), 20, 1, 9)
    assert (family, protocol) == (2, 6)
    assert struct.unpack_from("!HH", told, 24) == (40000, 7436)
    assert told[28:44] == bytes([10, 0, 0, 1]) + bytes(12)
    assert told[44:60] == bytes([10, 0, 0, 2]) + bytes(12)
    assert struct.unpack_from("=III", told, 60) == (3, 0xFFFFFFFF, 0xFFFFFFFF)


def test_ipv4_inside_ipv6_is_asked_for_as_ipv4() -> None:
    inside: SocketAddress = ("::ffff:10.0.0.1", 40000, 0, 0)
    other: SocketAddress = ("::ffff:10.0.0.2", 7436, 0, 0)
    assert encode_request(inside, other) == encode_request(("10.0.0.1", 40000), ("10.0.0.2", 7436))
    sixth = encode_request(("::1", 40000, 0, 0), ("::1", 7436, 0, 0))
    assert sixth[16] == 10
    assert sixth[28:44] == bytes(15) + b"\1"


@pytest.mark.parametrize("state", [_ESTABLISHED, _FIN_WAIT, _CLOSE_WAIT])
def test_who_has_a_socket_open_is_its_owner(state: int) -> None:
    assert decode_answer(_answer(state, _OTHER)) == SocketOwner(_OTHER, is_open=True)


@pytest.mark.parametrize("state", [_FIN_WAIT, _TIME_WAIT])
def test_a_socket_that_nobody_has_open_any_more_is_not_roots_though_the_kernel_says_so(
    state: int,
) -> None:
    owner = decode_answer(_answer(state, _ROOT, inode=0))
    assert owner == SocketOwner(_ROOT, is_open=False)
    assert origin_of(owner, _AGENT) is Origin.GONE


@pytest.mark.parametrize("state", [_LISTEN, _SYN_SENT])
def test_who_only_listens_there_or_asks_to_be_connected_is_not_the_other_end(state: int) -> None:
    assert decode_answer(_answer(state, _OTHER)) is None
    found = decode_answer(_answer(_LISTEN, _AGENT), listening=True)
    assert found == SocketOwner(_AGENT, is_open=True)


def _route(leads: int, *attributes: tuple[int, bytes]) -> bytes:
    """Return what the kernel says of the way to an address: nlmsghdr, rtmsg and attributes."""
    text = struct.pack("=BBxxxxxBI", 2, 32, leads, 0)
    for name, value in attributes:
        text += struct.pack("=HH", 4 + len(value), name) + value.ljust(
            -(-len(value) // 4) * 4, b"\0"
        )
    return _HEADER.pack(16 + len(text), 24, 0, 1, 0) + text


def test_the_interface_of_an_own_address_is_asked_of_the_routes() -> None:
    told = encode_route_request("10.0.0.1", 9)
    assert struct.unpack_from("=IHHIIBB", told) == (len(told), 26, 1, 9, 0, 2, 32)
    assert struct.unpack_from("=HH", told, 28) == (8, 1)
    assert told[32:] == bytes([10, 0, 0, 1])
    assert len(encode_route_request("fe80::1%2")) == len(told) + 12
    index = struct.pack("=i", 7)
    assert decode_route(_route(2, (15, b"abc"), (4, index))) == 7


def test_an_address_of_another_node_has_no_interface_here() -> None:
    index = struct.pack("=i", 7)
    assert decode_route(_route(1, (4, index))) is None
    assert decode_route(_error(errno.ENETUNREACH)) is None
    for broken in (b"", bytes(8), _route(2), _route(2, (4, b"")), _route(2, (15, b""))):
        assert decode_route(broken) is None


def test_no_such_socket_is_an_answer_and_every_other_error_is_one() -> None:
    assert decode_answer(_error(errno.ENOENT)) is None
    with pytest.raises(PermissionError):
        decode_answer(_error(errno.EPERM))
    for short in (b"", bytes(8), _answer(_ESTABLISHED, _OTHER)[:60]):
        with pytest.raises(OSError, match="too short"):
            decode_answer(short)


@pytest.mark.parametrize(
    ("owner", "origin"),
    [
        (SocketOwner(_AGENT, is_open=True), Origin.AGENT),
        (SocketOwner(_ROOT, is_open=True), Origin.AGENT),
        (SocketOwner(_OTHER, is_open=True), Origin.OTHER_USER),
        (SocketOwner(_OTHER, is_open=False), Origin.GONE),
        (None, Origin.ELSEWHERE),
    ],
)
def test_agents_of_this_node_are_its_own_user_and_root(
    owner: SocketOwner | None, origin: Origin
) -> None:
    assert origin_of(owner, _AGENT) is origin
