"""Roles from process groups: Megatron's orders, meshes of torch, irregular jobs, real dumps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.hangs.dumps.folder import read_folder
from everstep_controller.slow.roles import (
    ProcessGroup,
    RankRoles,
    RoleBasis,
    group_roles,
    reported_groups,
    told_roles,
)

_MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
}
_DUMPS = [one / "shared/data/nvrx_hangs" for one in Path(__file__).parents[4:6]]


def _layout(order: str, sizes: dict[str, int]) -> tuple[list[ProcessGroup], dict[str, list[int]]]:
    """Return Megatron's groups, the first axis the fastest, and each rank's place on each axis."""
    axes = order.split("-")
    shape = [sizes.get(axis, 1) for axis in reversed(axes)]
    ranks = np.arange(int(np.prod(shape))).reshape(shape)
    groups = []
    for number, axis in enumerate(reversed(axes)):
        rows = np.moveaxis(ranks, number, -1).reshape(-1, sizes.get(axis, 1))
        groups += [ProcessGroup(_MEGATRON[axis], tuple(row)) for row in rows.tolist()]
    places = np.indices(shape).reshape(len(shape), -1)
    return groups, {axis: places[-1 - one].tolist() for one, axis in enumerate(axes)}


def _names(found: RankRoles) -> list[str]:
    return [found.names[one] for one in found.roles.tolist()]


def _mesh(**axes: Sequence[Sequence[int]]) -> Iterator[ProcessGroup]:
    for name, rows in axes.items():
        for row in rows:
            yield ProcessGroup(f"mesh_{name}", tuple(row))


@pytest.mark.parametrize("order", ["-".join(one) for one in permutations(("tp", "cp", "dp", "pp"))])
def test_the_place_in_the_pipeline_is_a_role_in_any_order_of_ranks(order: str) -> None:
    groups, places = _layout(order, {"tp": 2, "cp": 2, "dp": 4, "pp": 3})
    names = _names(group_roles(groups, 48))
    wanted = [
        f"pp{stage} cp{context} tp{tensor}"
        for stage, context, tensor in zip(places["pp"], places["cp"], places["tp"], strict=True)
    ]
    assert names == wanted
    assert set(Counter(names).values()) == {4}


def test_where_few_have_the_same_data_rank_what_is_symmetric_is_taken_together() -> None:
    groups, places = _layout("tp-cp-ep-dp-pp", {"tp": 8, "dp": 2, "pp": 4})
    found = group_roles(groups, 64)
    assert _names(found) == [f"pp{stage}" for stage in places["pp"]]
    assert "tp are taken together" in found.sentence


def test_other_experts_are_other_work_even_where_that_leaves_few_peers() -> None:
    groups, places = _layout("tp-cp-ep-dp-pp", {"tp": 2, "ep": 4, "dp": 1, "pp": 2})
    found = group_roles(groups, 16)
    wanted = [f"pp{one} ep{two}" for one, two in zip(places["pp"], places["ep"], strict=True)]
    assert _names(found) == wanted


def test_groups_along_several_axes_say_nothing() -> None:
    groups, _ = _layout("tp-cp-ep-dp-pp", {"tp": 2, "dp": 8})
    beside = [
        ProcessGroup("MODEL_PARALLEL_GROUP", (0, 1)),
        ProcessGroup("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", tuple(range(16))),
        ProcessGroup("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", tuple(range(16))),
        ProcessGroup("EMBEDDING_GROUP", (0, 15)),
        ProcessGroup("default_pg", tuple(range(16)), sends=True),
    ]
    assert _names(group_roles([*groups, *beside], 16)) == ["tp0", "tp1"] * 8


def test_fsdp_with_tensor_parallel_ranks() -> None:
    rows = np.arange(32).reshape(8, 4)
    found = group_roles(_mesh(tp=rows.tolist(), dp_shard=rows.T.tolist()), 32)
    assert _names(found) == ["tp0", "tp1", "tp2", "tp3"] * 8
    assert found.basis is RoleBasis.GROUPS


@pytest.mark.parametrize("name", ["default_pg", "mesh_dp", "mesh_dp_shard_cp", "fsdp", ""])
def test_data_parallel_ranks_all_do_the_same(name: str) -> None:
    found = group_roles([ProcessGroup(name, tuple(range(16)))], 16)
    assert set(_names(found)) == {""}
    assert found.basis is RoleBasis.NOTHING


def test_a_group_without_a_name_that_sends_is_a_pipeline() -> None:
    rows = np.arange(16).reshape(4, 4).T.tolist()
    found = group_roles([ProcessGroup("undefined", tuple(row), sends=True) for row in rows], 16)
    assert _names(found) == [f"pp{rank // 4}" for rank in range(16)]


def test_a_pipeline_whose_neighbours_have_groups_of_two_is_one_pipeline() -> None:
    pairs = [(rank, rank + 4) for rank in range(12)] + [(rank, rank + 12) for rank in range(4)]
    found = group_roles([ProcessGroup("", pair, sends=True) for pair in pairs], 16)
    assert _names(found) == [f"pp{rank // 4}" for rank in range(16)]


def test_ranks_beside_the_pipeline_have_a_role_of_their_own() -> None:
    rows = [(rank, rank + 4, rank + 8) for rank in range(4)]
    found = group_roles(_mesh(pp=rows), 16)
    assert _names(found) == ["pp0"] * 4 + ["pp1"] * 4 + ["pp2"] * 4 + [""] * 4


def test_pipelines_of_different_lengths_are_compared_stage_by_stage() -> None:
    long = [(rank, rank + 4, rank + 8) for rank in range(4)]
    short = [(rank, rank + 4) for rank in range(12, 16)]
    found = group_roles(_mesh(pp=[*long, *short]), 20)
    assert Counter(_names(found)) == {"pp0": 8, "pp1": 8, "pp2": 4}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["mesh_pp", "mesh_tp", "mesh_ep", "pp", "x", ""]),
            st.lists(st.integers(-2, 20), unique=True, max_size=8),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_no_groups_make_it_fail(groups: list[tuple[str, list[int], bool]]) -> None:
    found = group_roles([ProcessGroup(name, tuple(of), sends) for name, of, sends in groups], 16)
    assert len(found.roles) == 16
    assert set(found.roles.tolist()) == set(range(len(found.names)))


def test_what_a_job_tells_is_taken_as_it_is() -> None:
    found = told_roles({0: "encoder", 1: "encoder", 2: "decoder"}, 4)
    assert _names(found) == ["encoder", "encoder", "decoder", ""]
    assert found.sentence == "the job told the roles, except 1 ranks"


@pytest.mark.parametrize("folder", [one / "gpu_error_2nd" for one in _DUMPS if one.is_dir()])
def test_roles_of_a_real_megatron_job(folder: Path) -> None:
    """TP 4, PP 2 and EP 8 of 16 ranks, as NVIDIA's dumps tell it."""
    groups = reported_groups(read_folder(folder).reports.values())
    found = group_roles(groups, 16)
    assert len(set(_names(found))) == 16
    assert [name.split()[0] for name in _names(found)] == ["pp0"] * 8 + ["pp1"] * 8
