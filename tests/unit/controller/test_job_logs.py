"""Logs of a job: who may read them, and which nodes are asked."""

import os
import pwd
from contextlib import ExitStack

import pytest

from everstep_controller.api.admin.askers import may_read
from everstep_controller.api.admin.errors import OrderRefusedError, UnknownNameError
from everstep_controller.api.admin.ranks import (
    FOLLOWERS_MAX,
    NODES_MAX,
    ReaderPlaces,
    nodes_of,
)
from everstep_controller.core.model.job import JobRecord, Members
from everstep_proto.tls import LOCAL, Identity, Role
from unit.core.test_decisions import Story


def _job(members: int = 3, processes: int = 2) -> JobRecord:
    story = Story()
    story.run()
    job = story.core.state.newest("j")
    job.generation.members = Members(f"n{number}" for number in range(members))
    job.spec = type(job.spec)(
        uid=os.getuid(),
        token_sha256="t",
        nodes_min=1,
        nodes_max=members,
        processes_per_node=processes,
    )
    return job


def test_operators_and_the_user_of_the_job_may_read_what_it_wrote_and_nobody_else() -> None:
    job, login = _job(), pwd.getpwuid(os.getuid()).pw_name
    other = next(one.pw_name for one in pwd.getpwall() if one.pw_uid != os.getuid())
    assert may_read(LOCAL, job)
    assert may_read(Identity("ann", Role.OPERATOR), job)
    assert may_read(Identity(login, Role.VIEWER), job)
    assert not may_read(Identity(other, Role.VIEWER), job)
    for name in ("nobody-has-this-login", "", "a\0b", "x" * 5000):
        assert not may_read(Identity(name, Role.VIEWER), job)


def test_a_rank_is_asked_for_where_it_runs() -> None:
    job = _job()
    assert [nodes_of(job, rank) for rank in (0, 1, 4)] == [["n0"], ["n0"], ["n2"]]
    assert nodes_of(job, None) == ["n0", "n1", "n2"]
    with pytest.raises(UnknownNameError, match="j has no rank 6; it has 6"):
        nodes_of(job, 6)


def test_of_a_large_job_a_rank_is_named_rather_than_all_nodes_asked() -> None:
    job = _job(NODES_MAX + 1)
    with pytest.raises(OrderRefusedError, match="everstep logs j --rank 0"):
        nodes_of(job, None)
    assert nodes_of(job, 2 * NODES_MAX) == [f"n{NODES_MAX}"]


def test_before_it_has_ranks_a_job_has_no_rank_to_read_of() -> None:
    job = _job(0)
    with pytest.raises(UnknownNameError, match="has no rank 0"):
        nodes_of(job, 0)


def _enter_all(stack: ExitStack, places: ReaderPlaces, who: Identity) -> int:
    """Return how many places somebody gets who takes all there are."""
    for taken in range(100):
        try:
            stack.enter_context(places.place(who))
        except OrderRefusedError:
            return taken
    return 100


def test_no_viewer_keeps_another_from_reading_and_all_of_them_no_operator() -> None:
    places, operator = ReaderPlaces(), Identity("ann", Role.OPERATOR)
    with ExitStack() as stack:
        taken = [_enter_all(stack, places, Identity(f"u{n}", Role.VIEWER)) for n in range(20)]
        assert taken == [4] * 6 + [0] * 14
        assert _enter_all(stack, places, operator) == FOLLOWERS_MAX - 24
    with ExitStack() as stack:
        assert _enter_all(stack, places, LOCAL) == FOLLOWERS_MAX
