"""Who has how much, what is still promised, and how it is said."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.memory.capacity import MemoryUse
from everstep_agent.vault.memory.quota import (
    JobShare,
    MemoryAccounting,
    Promise,
    describe_shares,
    promised_use,
)

_MIB = 1 << 20


def test_what_a_job_takes_comes_out_of_what_it_was_promised() -> None:
    accounts, made = MemoryAccounting(), [Promise("demo", 7, 10)]
    assert accounts.shares_of_others("next", made) == [JobShare("demo", 7, 0, 10)]
    accounts.add(7, "demo", 4)
    assert accounts.shares_of_others("next", made) == [JobShare("demo", 7, 4, 6)]
    accounts.add(7, "demo", 9)
    assert accounts.shares_of_others("next", made) == [JobShare("demo", 7, 13, 0)]
    accounts.add(7, "demo", -13)
    assert accounts.shares_of_others("next", []) == []


def test_a_job_does_not_stand_in_its_own_way() -> None:
    accounts = MemoryAccounting()
    accounts.add(7, "demo", 4)
    assert accounts.shares_of_others("demo", [Promise("demo", 7, 10)]) == []


def test_what_another_user_left_under_the_name_is_no_part_of_the_promise() -> None:
    accounts = MemoryAccounting()
    accounts.add(8, "demo", 4)
    assert accounts.shares_of_others("next", [Promise("demo", 7, 10)]) == [
        JobShare("demo", 7, 0, 10),
        JobShare("demo", 8, 4, 0),
    ]


def test_promises_count_against_the_user_who_has_them() -> None:
    parts = [JobShare("a", 7, 1, 10), JobShare("b", 8, 2, 20)]
    assert promised_use(parts, 8) == MemoryUse(30, 20)


def test_it_is_said_who_has_what_the_largest_first() -> None:
    assert describe_shares([]) == ""
    parts = [
        JobShare("a", 7, 0, _MIB),
        JobShare("b", 7, 4 * _MIB, 2 * _MIB),
        JobShare("", 7, 3 * _MIB),
        JobShare("c", 8, 2 * _MIB),
        JobShare("d", 8, 1),
        JobShare("e", 8, 1),
    ]
    assert describe_shares(parts) == (
        " (job b holds 4.0 MiB and is promised 2.0 MiB more; a job holds 3.0 MiB; "
        "job c holds 2.0 MiB; job a is promised 1.0 MiB; 2 more jobs hold less)"
    )


_CHANGES = st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(1, 9)))


@given(_CHANGES)
def test_what_was_given_out_and_came_back_leaves_nothing(
    changes: list[tuple[int, str, int]],
) -> None:
    accounts = MemoryAccounting()
    for uid, job, size in changes:
        accounts.add(uid, job, size)
    assert accounts.used_bytes == sum(size for _, _, size in changes)
    assert accounts.use_of(1).user_bytes == sum(size for uid, _, size in changes if uid == 1)
    for uid, job, size in changes:
        accounts.add(uid, job, -size)
    assert accounts.used_bytes == 0
    assert accounts.shares_of_others("none", []) == []
