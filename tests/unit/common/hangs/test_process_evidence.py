"""Whether a rank stands in communication, as its stacks and its state tell."""

import pytest

from everstep_common.hangs.judging.process_evidence import in_communication
from everstep_common.hangs.reports.rank_report import (
    Library,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)

_ELSEWHERE = ("train.py:53 train", "train.py:143 main")
_IN_TORCH = ("libtorch_cpu.so", "libtorch_python.so", "libpython3.11.so.1.0")
_GPU = (Library("cuda_driver", "580.159.04"), Library("nccl", "2.28.9"))


def _rank(*native: str, libraries: tuple[Library, ...] = (), **facts: object) -> RankHangReport:
    known = {"state": ProcessState.SLEEPING, "python_stack": _ELSEWHERE, **facts}
    process = ProcessFacts(native_stack=native, **known)  # type: ignore[arg-type]
    return RankHangReport(rank=0, process=process, libraries=libraries)


@pytest.mark.parametrize(
    ("native", "wchan", "inside"),
    [
        (_IN_TORCH, "futex_do_wait", True),
        (("python3.11", "libtorch_cpu.so"), "futex_do_wait", False),
        # What a stack has of an earlier call is not where the rank stands.
        (("libtorch_cpu.so", "libpython3.11.so.1.0", "python3.11"), "futex_do_wait", False),
        (_IN_TORCH, "hrtimer_nanosleep", False),
        (_IN_TORCH, "anon_pipe_read", False),
        (_IN_TORCH, "wait_woken", False),
        # Where the kernel does not tell, the stack does; without one nobody knows.
        (_IN_TORCH, "", True),
        (_IN_TORCH, "0", True),
        ((), "futex_do_wait", None),
        ((), "anon_pipe_read", False),
    ],
)
def test_a_rank_of_gloo_stands_where_its_native_stack_is(
    native: tuple[str, ...], wchan: str, inside: bool | None
) -> None:
    assert in_communication(_rank(*native, wchan=wchan)) is inside


@pytest.mark.parametrize(
    ("state", "native", "inside"),
    [
        (ProcessState.RUNNING, (), None),  # it asks its GPU all the time, or computes
        (ProcessState.SLEEPING, (), None),  # nobody could read where
        (ProcessState.SLEEPING, ("libc10.so", "libcuda.so.580.159.04"), None),
        (ProcessState.SLEEPING, ("libnccl.so.2",), None),
        (ProcessState.SLEEPING, ("python3.12",), False),
        (ProcessState.UNINTERRUPTIBLE, (), False),  # it reads a file
    ],
)
def test_a_rank_that_uses_a_gpu_may_wait_for_it_in_any_line(
    state: ProcessState, native: tuple[str, ...], inside: bool | None
) -> None:
    assert in_communication(_rank(*native, libraries=_GPU, state=state)) is inside


def test_a_rank_in_a_collective_s_own_frames_is_inside_whatever_it_uses() -> None:
    stack = ("distributed_c10d.py:3068 all_reduce", *_ELSEWHERE)
    for libraries in ((), _GPU):
        running = _rank(libraries=libraries, state=ProcessState.RUNNING, python_stack=stack)
        assert in_communication(running) is True


def test_a_build_for_cuda_without_a_gpu_is_no_rank_that_waits_for_one() -> None:
    loaded = (Library("nccl", "2.20.5"), Library("cudart", "12.1"))
    assert in_communication(_rank(libraries=loaded, state=ProcessState.RUNNING)) is False
