"""A token opens the page once, and a session ends."""

from itertools import count

from everstep_cli.page.access import SESSION_S, SESSIONS_MAX, TOKEN_S, Access
from everstep_proto.tls import Role


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _access(clock: _Clock | None = None) -> Access:
    names = (f"secret-{number}" for number in count())
    return Access(clock or _Clock(), lambda: next(names))


def test_a_token_opens_one_session_and_no_second() -> None:
    access = _access()
    token = access.new_token()
    session = access.open_session(token)
    assert session is not None
    assert access.has_session(session)
    assert access.open_session(token) is None


def test_a_wrong_token_opens_nothing_and_does_not_use_up_the_right_one() -> None:
    access = _access()
    token = access.new_token()
    for wrong in ("", "secret", f"{token} ", "\udcff"):
        assert access.open_session(wrong) is None
        assert not access.has_session(wrong)
    assert access.open_session(token) is not None


def test_a_newer_token_ends_the_older_one() -> None:
    access = _access()
    older, newer = access.new_token(), access.new_token()
    assert access.open_session(older) is None
    assert access.open_session(newer) is not None


def test_tokens_and_sessions_grow_old() -> None:
    clock = _Clock()
    access = _access(clock)
    token = access.new_token()
    clock.now_s += TOKEN_S + 1
    assert access.open_session(token) is None
    session = access.open_session(access.new_token())
    assert session is not None
    clock.now_s += SESSION_S
    assert access.has_session(session)
    clock.now_s += 1
    assert not access.has_session(session)


def test_the_oldest_session_ends_for_one_more_than_there_may_be() -> None:
    access = _access()
    sessions = [access.open_session(access.new_token()) or "" for _ in range(SESSIONS_MAX + 1)]
    assert not access.has_session(sessions[0])
    assert all(access.has_session(one) for one in sessions[1:])


def test_a_session_has_the_role_of_its_address_and_each_role_has_one() -> None:
    access = _access()
    viewer, operator = access.new_token(), access.new_token(Role.OPERATOR)
    roles = []
    for token in (operator, viewer):
        person = access.person(access.open_session(token) or "")
        assert person is not None
        roles.append(person.role)
    assert roles == [Role.OPERATOR, Role.VIEWER]


def test_a_session_that_is_ended_is_over_and_others_are_not() -> None:
    access = _access()
    first, second = (access.open_session(access.new_token()) or "" for _ in range(2))
    access.end_session(first)
    access.end_session("nobody's")
    assert not access.has_session(first)
    assert access.has_session(second)
    assert access.left_s(first) == 0
    assert access.left_s(second) == SESSION_S


def test_a_page_that_starts_anew_knows_no_session_and_no_token_of_before() -> None:
    before = _access()
    session, token = before.open_session(before.new_token()), before.new_token()
    after = Access(_Clock(), iter(["other"]).__next__)
    assert not after.has_session(session or "")
    assert after.open_session(token) is None
