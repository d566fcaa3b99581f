"""What ranks have loaded, as others are told it: names of modules and harmless variables only."""

import pytest

from everstep_common.preload import Preload, is_sound, preload_for_others


def test_modules_are_told_in_their_order_and_those_of_python_itself_are_not() -> None:
    found = preload_for_others(["sys", "torch", "collections.abc", "torch.nn"], {})
    assert found == Preload(("torch", "torch.nn"))


def test_settings_are_told_with_them() -> None:
    variables = {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "WARN", "TORCHINDUCTOR_CACHE_DIR": "/tmp/x"}
    found = preload_for_others(["torch"], variables)
    assert found == Preload(("torch",), {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "WARN"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("ROCR_VISIBLE_DEVICES", "1"),
        ("HIP_VISIBLE_DEVICES", "1"),
        ("ASCEND_RT_VISIBLE_DEVICES", "1"),
        ("ZE_AFFINITY_MASK", "0.1"),
        ("SLURM_LOCAL_RANK", "3"),
        ("WANDB_API_KEY", "0123abcd"),
        ("HF_TOKEN", "hf"),
        ("LD_PRELOAD", "libx.so"),
        ("PYTHONPATH", "x"),
        ("PATH", "x"),
        ("HF_HOME", "/shared/hf"),
        ("NAME", "two words"),
        ("LONG", "x" * 33),
        ("not-a-name", "1"),
        ("", "1"),
    ],
)
def test_with_a_variable_that_others_must_not_be_told_they_are_told_nothing(
    name: str, value: str
) -> None:
    assert preload_for_others(["torch"], {name: value}) is None
    assert not is_sound(Preload(("torch",), {name: value}))


@pytest.mark.parametrize(
    "name",
    ["", ".", "a.", ".a", "a..b", "a b", "a;b", "../a", "a/b", "1a", "a-b", "é", "a\n", "a" * 201],
)
def test_what_is_no_name_of_a_module_is_refused(name: str) -> None:
    assert not is_sound(Preload((name,)))
    assert preload_for_others([name], {}) is None


def test_of_more_than_fits_the_last_are_told() -> None:
    names = [f"package.module{number:05}" for number in range(10_000)]
    found = preload_for_others(names, {"OMP_NUM_THREADS": "4"})
    assert found is not None
    assert is_sound(found)
    assert found.modules == tuple(names[-len(found.modules) :])
    assert sum(len(name) + 1 for name in found.modules) > 60_000
    assert not is_sound(Preload(tuple(names)))
    assert not is_sound(Preload(("a",), {f"A{number}": "1" for number in range(65)}))
