"""Enrolment: what a token, a renewal and a revocation allow, on data and in virtual time."""

from dataclasses import replace

import pytest

from everstep_controller.core.actions import Announce
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import (
    CertificateRenewed,
    ControllerStarted,
    EnrolmentRefused,
    Event,
    NodeConnected,
    NodeEnrolled,
    PodEnrolled,
)
from everstep_controller.core.fleet.enrolment import (
    CertificatesRevoked,
    EnrolmentAsked,
    PodEnrolmentAsked,
    RenewalAsked,
    TokenMade,
    TokenRevoked,
    enrolment_problem,
    not_before_s,
    pod_enrolment_problem,
    renewal_problem,
    revocation_problem,
    token_problem,
)
from everstep_controller.core.model.enrolment import Token, names_problem
from everstep_controller.journal.codec import decode_event, decode_state, encode, kind_of

_S, _DAY_S = 1_000_000_000, 86_400
_HOUR_NS = 3600 * _S
# A Monday in December.
_T0_S = 1_796_000_000
_GRACE_S = 30 * _DAY_S

_TOKEN = Token(
    id="aaaaaaaa",
    secret_sha256="5ec",
    names="gpu-1",
    nodes=("gpu-1",),
    uses_max=1,
    made_ns=_T0_S * _S,
    until_ns=_T0_S * _S + _HOUR_NS,
    operator="ann",
)
_MANY = replace(
    _TOKEN, id="bbbbbbbb", names="gpu-[1-3]", nodes=("gpu-1", "gpu-2", "gpu-3"), uses_max=0
)
_ASKED = EnrolmentAsked(
    token="aaaaaaaa", secret_sha256="5ec", node="gpu-1", key_sha256="k1", clock_s=_T0_S
)


class World:
    """A core whose time is what a test says, and all that it has told people."""

    def __init__(self, *tokens: Token) -> None:
        self.core, self.now_s = Core(), _T0_S
        self.said: list[str] = []
        self.take(ControllerStarted("0.1.0"))
        for token in tokens:
            self.take(TokenMade(token))

    def take(self, event: Event) -> None:
        """Have an event journaled, read again, and handled."""
        again = decode_event(kind_of(event), encode(event))
        actions = self.core.handle(again, self.now_s * _S)
        self.said += [one.message for one in actions if isinstance(one, Announce)]

    def problem(self, asked: EnrolmentAsked = _ASKED) -> str:
        return enrolment_problem(self.core.state, asked, self.now_s * _S, self.now_s)

    def enrol(self, asked: EnrolmentAsked = _ASKED, serial: str = "a1") -> None:
        """What the shell does with a request that is admissible."""
        assert self.problem(asked) == ""
        self.take(
            NodeEnrolled(
                node=asked.node,
                token=asked.token,
                key_sha256=asked.key_sha256,
                serial=serial,
                since_s=self.now_s - 300,
                ends_s=self.now_s + 30 * _DAY_S,
                address="10.0.0.1",
            )
        )

    def renewal(self, serial: str = "a1", node: str = "gpu-1") -> str:
        asked = RenewalAsked(
            node=node,
            serial=serial,
            since_s=_T0_S - 300,
            ends_s=_T0_S + 30 * _DAY_S,
            key_sha256="k2",
        )
        return renewal_problem(self.core.state, asked, self.now_s, _GRACE_S)

    def renew(self, before: str, serial: str) -> None:
        assert self.renewal(before) == ""
        self.take(
            CertificateRenewed(
                node="gpu-1",
                before=before,
                since_s=_T0_S - 300,
                serial=serial,
                key_sha256=f"key of {serial}",
                ends_s=self.now_s + 30 * _DAY_S,
            )
        )


def _connect(world: World, node: str) -> None:
    world.take(
        NodeConnected(
            node=node,
            agent_version="0.1.0",
            outbox=f"outbox of {node}",
            highest_term=0,
            boot_id="boot",
            host="10.0.0.9",
        )
    )


def test_a_token_enrols_its_node_once() -> None:
    world = World(_TOKEN)
    world.enrol()
    assert "was used already" not in world.problem()
    assert world.problem(replace(_ASKED, key_sha256="another")) == (
        "gpu-1 has enrolled by token aaaaaaaa already; for another token: everstep tokens make "
        "--node gpu-1"
    )
    assert world.said[-1].startswith("gpu-1 enrolled from 10.0.0.1 by token aaaaaaaa: certificate")


def test_the_same_key_may_ask_again_for_an_answer_that_was_lost() -> None:
    world = World(_TOKEN)
    world.enrol()
    world.enrol(serial="a2")
    assert world.core.state.enrolment.certificates["gpu-1"].serial == "a2"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (replace(_ASKED, token="cccccccc"), "this controller has no such token: it was mistyped"),
        (replace(_ASKED, secret_sha256="x"), "this controller has no such token: it was mistyped"),
        (replace(_ASKED, node="gpu-2"), "token aaaaaaaa is for gpu-1, and not for gpu-2"),
        (replace(_ASKED, node="GPU-1.rack-7.site"), "no dots; type --node gpu-1"),
        (replace(_ASKED, node="gpu_1"), "no dots; type --node gpu-1"),
        (replace(_ASKED, node=""), "'' cannot be enrolled"),
        (replace(_ASKED, clock_s=_T0_S - _DAY_S), "is 1 d behind the controller's (20"),
        (replace(_ASKED, clock_s=_T0_S + 3700), "is 1 h 1 min ahead of the controller's (20"),
    ],
)
def test_what_a_token_does_not_allow_is_one_sentence(asked: EnrolmentAsked, said: str) -> None:
    problem = World(_TOKEN).problem(asked)
    assert said in problem
    assert "\n" not in problem


def test_a_token_ends_and_can_be_revoked() -> None:
    world = World(_TOKEN, _MANY)
    world.take(TokenRevoked("bbbbbbbb", "bob"))
    assert "token bbbbbbbb was revoked by bob" in world.problem(replace(_ASKED, token="bbbbbbbb"))
    world.now_s += 3601
    asked = replace(_ASKED, clock_s=world.now_s)
    assert "token aaaaaaaa ended at 20" in world.problem(asked)


def test_a_token_for_many_enrols_each_once_and_replaces_nobody() -> None:
    world = World(_TOKEN, _MANY)
    many = replace(_ASKED, token="bbbbbbbb")
    world.enrol()
    assert "gpu-1 is enrolled already" in world.problem(replace(many, key_sha256="thief"))
    for node in ("gpu-2", "gpu-3"):
        world.enrol(replace(many, node=node, key_sha256=f"key of {node}"), f"serial of {node}")
    assert set(world.core.state.enrolment.certificates) == {"gpu-1", "gpu-2", "gpu-3"}


def test_a_token_for_the_first_of_many_is_used_by_one() -> None:
    world = World(replace(_MANY, uses_max=1))
    many = replace(_ASKED, token="bbbbbbbb")
    world.enrol(many)
    said = world.problem(replace(many, node="gpu-2", key_sha256="k2"))
    assert said.startswith("token bbbbbbbb was used already, by gpu-1")


def test_a_token_of_its_own_replaces_the_key_of_a_node_that_was_installed_anew() -> None:
    world = World(_TOKEN, replace(_TOKEN, id="cccccccc"))
    world.enrol()
    world.enrol(replace(_ASKED, token="cccccccc", key_sha256="new"), "b1")
    held = world.core.state.enrolment
    assert held.revocation("gpu-1", "a1", _T0_S - 300) is not None
    assert held.revocation("gpu-1", "b1", _T0_S - 300) is None
    assert "was revoked" in world.renewal("a1")
    assert world.renewal("b1") == ""


def test_a_name_whose_agent_is_connected_is_given_to_nobody_else() -> None:
    world = World(_TOKEN)
    _connect(world, "gpu-1")
    assert world.problem().startswith("an agent is connected as gpu-1 now, from 10.0.0.9: two")


def test_a_pattern_is_for_all_names_like_it() -> None:
    world = World(replace(_MANY, names="gpu-*", nodes=()))
    many = replace(_ASKED, token="bbbbbbbb")
    assert world.problem(replace(many, node="gpu-0042")) == ""
    assert "is for gpu-*" in world.problem(replace(many, node="cpu-1"))


@pytest.mark.parametrize(
    ("names", "nodes", "said"),
    [
        ("gpu-1", ("gpu-1",), ""),
        ("gpu-*", (), ""),
        ("gpu-?", (), "names no node"),
        ("GPU-*", (), "a pattern has small letters"),
        ("a,B.c", ("a", "B.c"), "'B.c' cannot be enrolled"),
    ],
)
def test_names_of_a_token(names: str, nodes: tuple[str, ...], said: str) -> None:
    problem = names_problem(names, nodes)
    assert (said in problem) if said else not problem


def test_a_certificate_is_renewed_until_thirty_days_after_its_end() -> None:
    world = World(_TOKEN)
    world.enrol()
    world.now_s = _T0_S + 60 * _DAY_S
    assert world.renewal() == ""
    world.now_s += 1
    assert world.renewal() == (
        "the certificate ended at 2026-12-30T00:53:20Z, more than 30 d ago; join again with a "
        "token: everstep tokens make --node gpu-1"
    )


def test_renewals_follow_each_other_and_older_ones_of_the_line_still_count() -> None:
    world = World(_TOKEN)
    world.enrol()
    world.renew("a1", "a2")
    world.renew("a2", "a3")
    newest = world.core.state.enrolment.certificates["gpu-1"]
    assert (newest.serial, newest.before) == ("a3", ("a1", "a2"))
    # The answer to the renewal of a2 was lost: the agent asks again with what it has.
    assert world.renewal("a2") == ""
    assert world.renewal("zz").startswith("another key was enrolled for gpu-1")


def test_a_line_of_renewals_is_of_bounded_length() -> None:
    world = World(_TOKEN)
    world.enrol()
    for number in range(20):
        before = world.core.state.enrolment.certificates["gpu-1"].serial
        world.renew(before, f"r{number}")
    assert len(world.core.state.enrolment.certificates["gpu-1"].before) == 8


def test_a_journal_that_was_lost_renews_what_the_authority_has_signed() -> None:
    assert World().renewal() == ""


def test_a_revoked_node_renews_nothing_and_a_new_token_brings_it_back() -> None:
    world = World(_TOKEN, replace(_TOKEN, id="cccccccc", until_ns=_TOKEN.until_ns + _HOUR_NS))
    world.enrol()
    world.now_s += 1000
    world.take(CertificatesRevoked(node="gpu-1", operator="ann", reason="stolen", at_s=world.now_s))
    assert world.renewal().startswith("the certificate of gpu-1 was revoked at 20")
    assert ": stolen; join again" in world.renewal()
    again = replace(_ASKED, token="cccccccc", key_sha256="new", clock_s=world.now_s)
    world.enrol(again, "b1")
    held, since_s = world.core.state.enrolment, not_before_s(world.core.state, "gpu-1", world.now_s)
    assert since_s == world.now_s + 1
    assert held.revocation("gpu-1", "b1", since_s) is None
    assert held.revocation("gpu-1", "a1", _T0_S - 300) is not None


def test_a_single_certificate_is_revoked_by_its_serial() -> None:
    world = World(_TOKEN)
    world.enrol()
    world.take(CertificatesRevoked(serial="a1", operator="ann", reason="", at_s=world.now_s))
    held = world.core.state.enrolment
    assert held.revocation("gpu-1", "a1", 0) is not None
    assert held.revocation("gpu-1", "a2", _T0_S) is None
    assert world.said[-1] == "ann revoked certificate a1"


def test_only_what_somebody_has_is_revoked_by_name() -> None:
    world = World(_TOKEN)
    assert "no node and no certificate of the name 'gpu-1'" in revocation_problem(
        world.core.state, "gpu-1", ""
    )
    assert revocation_problem(world.core.state, "", "abc") == ""
    world.enrol()
    assert revocation_problem(world.core.state, "gpu-1", "") == ""


def test_a_use_that_was_taken_by_another_request_meanwhile_changes_nothing() -> None:
    world = World(_TOKEN)
    asked, late = _ASKED, replace(_ASKED, key_sha256="late")
    assert world.problem(asked) == world.problem(late) == ""
    world.enrol(asked)
    world.take(
        NodeEnrolled(
            node="gpu-1",
            token="aaaaaaaa",
            key_sha256="late",
            serial="b9",
            since_s=_T0_S,
            ends_s=_T0_S + 1,
            address="10.0.0.2",
        )
    )
    assert world.core.state.enrolment.certificates["gpu-1"].serial == "a1"


def test_refusals_are_told_under_a_name_that_is_known_else_under_the_controllers() -> None:
    world = World(_TOKEN)
    world.enrol()
    refused = EnrolmentRefused(
        what="enrolment", node="gpu-1", address="10.0.0.7", reason="why", count=3
    )
    actions = world.core.handle(refused, _T0_S * _S)
    stranger = world.core.handle(replace(refused, node="x", count=1), _T0_S * _S)
    said = [one for one in [*actions, *stranger] if isinstance(one, Announce)]
    told = [(one.subject, one.message) for one in said]
    assert told == [
        (
            "gpu-1",
            "enrolment for gpu-1 from 10.0.0.7 was refused (3 times within a minute): why",
        ),
        ("controller", "enrolment for x from 10.0.0.7 was refused: why"),
    ]


def test_tokens_are_bounded_and_those_that_ended_long_ago_are_forgotten() -> None:
    world = World(*(replace(_TOKEN, id=f"t{number}") for number in range(1000)))
    assert token_problem(world.core.state, _TOKEN).startswith("1000 tokens are open")
    world.now_s += 32 * _DAY_S
    now_ns = world.now_s * _S
    world.take(TokenMade(replace(_TOKEN, made_ns=now_ns, until_ns=now_ns + 1)))
    assert set(world.core.state.enrolment.tokens) == {"aaaaaaaa"}


def test_a_halted_controller_enrols_and_renews_nobody() -> None:
    world = World(_TOKEN)
    world.core.state.halted = "its journal is old"
    assert world.problem() == "the controller acts on nothing now: its journal is old"
    assert world.renewal() == "the controller acts on nothing now: its journal is old"


def test_a_snapshot_has_all_of_it_and_no_secret() -> None:
    world = World(_TOKEN, _MANY)
    world.enrol()
    world.take(CertificatesRevoked(serial="ff", operator="ann", reason="r", at_s=world.now_s))
    assert decode_state(encode(world.core.state)).enrolment == world.core.state.enrolment


_POD = PodEnrolmentAsked(
    pod="everstep/agent-x7k",
    uid="u1",
    runs_on="gpu-1.rack",
    node="gpu-1.rack",
    key_sha256="k1",
    clock_s=_T0_S,
)


def _pod_problem(world: World, asked: PodEnrolmentAsked = _POD) -> str:
    return pod_enrolment_problem(world.core.state, asked, world.now_s)


def _enrol_pod(world: World, asked: PodEnrolmentAsked = _POD, serial: str = "a1") -> None:
    """What the shell does with a pod that is admissible."""
    assert _pod_problem(world, asked) == ""
    _take_pod(world, asked, serial)


def _take_pod(world: World, asked: PodEnrolmentAsked, serial: str) -> None:
    world.take(
        PodEnrolled(
            node=asked.node,
            pod=asked.pod,
            uid=asked.uid,
            key_sha256=asked.key_sha256,
            serial=serial,
            since_s=world.now_s - 300,
            ends_s=world.now_s + 30 * _DAY_S,
            address="10.0.0.1",
        )
    )


def test_a_pod_enrols_the_node_that_kubernetes_names() -> None:
    world = World()
    _enrol_pod(world)
    certificate = world.core.state.enrolment.certificates["gpu-1.rack"]
    assert (certificate.serial, certificate.token) == ("a1", "pod/u1")
    assert world.said[-1].startswith(
        "gpu-1.rack enrolled from 10.0.0.1 as pod everstep/agent-x7k: certificate a1 until"
    )
    # For an answer that was lost.
    _enrol_pod(world, serial="a2")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (replace(_POD, node="gpu-2"), "runs on gpu-1.rack and asks for a certificate of 'gpu-2'"),
        (replace(_POD, clock_s=_T0_S - _DAY_S), "is 1 d behind the controller's"),
        (
            replace(_POD, node="g" * 65, runs_on="g" * 65),
            "cannot be enrolled: a certificate names up to 64 characters",
        ),
        (replace(_POD, node="GPU", runs_on="GPU"), "cannot be enrolled"),
    ],
)
def test_what_a_pod_may_not_have(asked: PodEnrolmentAsked, said: str) -> None:
    assert said in _pod_problem(World(), asked)


def test_a_pod_enrols_one_key_and_its_successor_another() -> None:
    world = World()
    _enrol_pod(world)
    thief = replace(_POD, key_sha256="k2")
    assert _pod_problem(world, thief) == (
        "pod everstep/agent-x7k has enrolled gpu-1.rack already, with another key; where its own "
        "data folder was lost, its successor may: kubectl delete pod -n everstep agent-x7k"
    )
    _take_pod(world, replace(_POD, key_sha256="k2"), "a2")
    assert world.core.state.enrolment.certificates["gpu-1.rack"].serial == "a1"
    _enrol_pod(world, replace(thief, uid="u2"), "a3")
    assert "a1" in world.core.state.enrolment.revoked_serials


def test_a_second_agent_of_a_node_is_no_successor_while_the_first_is_connected() -> None:
    world = World()
    _enrol_pod(world)
    _connect(world, "gpu-1.rack")
    said = _pod_problem(world, replace(_POD, uid="u2", key_sha256="k2"))
    assert said.startswith("an agent is connected as gpu-1.rack now, from 10.0.0.9")


def test_a_pod_does_not_bring_a_revoked_node_back() -> None:
    world = World()
    _enrol_pod(world)
    world.take(CertificatesRevoked(node="gpu-1.rack", operator="ann", reason="stolen", at_s=_T0_S))
    successor = replace(_POD, uid="u2", key_sha256="k2", clock_s=_T0_S)
    assert "a pod does not bring it back, a token does" in _pod_problem(world, successor)
    before = dict(world.core.state.enrolment.certificates)
    _take_pod(world, successor, "a9")
    assert world.core.state.enrolment.certificates == before
