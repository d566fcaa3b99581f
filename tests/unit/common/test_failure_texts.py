"""More texts of failures than those that the table was written from, and what shells pass on."""

import pytest

from everstep_common.failures.classification import classify, last_said

_HEAD = "Traceback (most recent call last):"
_FRAME = '  File "/job/train.py", line 7, in <module>'


# Texts that people have posted of failed jobs, or that the sources of these projects hold.
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: CUDA driver error: out of memory", "device_memory"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "device_memory"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "cuda"),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying "
            "to allocate 7406166528 bytes.",
            "device_memory",
        ),
        ("RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB", "device_memory"),
        (
            "RuntimeError: copy_d2d:torch_npu/csrc/aten/common/CopyKernel.cpp:274 NPU function "
            "error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout, error code is 507001",
            "cuda",
        ),
        ("RuntimeError: ACL stream synchronize failed, error code:507015", "cuda"),
        ("RuntimeError: No CUDA GPUs are available", "cuda"),
        ("RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "cuda"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "exception"),
        ("AssertionError: Unknown c10d backend type NCLC", "exception"),
        ("RuntimeError: HIP error: hipErrorLaunchFailure", "cuda"),
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 32.0 GiB for an array "
            "with shape (2048, 2048, 2048, 4) and data type uint8",
            "host_memory",
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 8000000000000 bytes.",
            "host_memory",
        ),
        ("RuntimeError: DataLoader worker (pid(s) 1995171, 1996371) exited unexpectedly", "crash"),
        (
            "RuntimeError: DataLoader worker (pid 4432) is killed by signal: Segmentation fault. ",
            "crash",
        ),
        (
            "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and "
            "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
            "store->get('0') got error: Socket Timeout",
            "collective",
        ),
        ("RuntimeError: Socket Timeout", "collective"),
        (
            "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms "
            "for recv operation to complete",
            "collective_timeout",
        ),
        (
            "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 5000 ms",
            "collective_timeout",
        ),
        (
            "torch.distributed.DistBackendError: [Rank 3] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600029 milliseconds before "
            "timing out.",
            "collective_timeout",
        ),
        (
            "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /x",
            "collective_timeout",
        ),
        (
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
            "collective: CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape="
            "[10]), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=4",
            "collective_mismatch",
        ),
        (
            "RuntimeError: The client socket has timed out after 1800s while trying to connect to "
            "(10.0.0.1, 29500).",
            "collective",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
            "NCCLUtils.hpp:275, invalid usage (run with NCCL_DEBUG=WARN for details)",
            "exception",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, "
            "internal error - please report this issue to the NCCL developers, NCCL version 2.27.3",
            "collective",
        ),
        (
            "RuntimeError: [3] ncclSystemError: System call (e.g. socket, malloc) failed",
            "collective",
        ),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/mnt/data'", "storage"),
        ("OSError: [Errno 117] Structure needs cleaning: '/data/x'", "storage"),
        ("OSError: [Errno 113] No route to host", "network"),
        (
            "huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: x",
            "network",
        ),
        (
            "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint",
            "network",
        ),
        (
            "RuntimeError: Rank 3, node n, device 3, iteration 412: Unexpected result nan "
            "(message='found NaN in local forward loss calculation')",
            "nan",
        ),
        ("AssertionError: Rank 3: found NaN in local grad norm in backward pass", "nan"),
        (
            "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably "
            "exploding.",
            "nan",
        ),
        (
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore.",
            "nan",
        ),
        (
            "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is "
            "non-finite, so it cannot be clipped.",
            "nan",
        ),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file", "import"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'train.yaml'", "exception"),
        ("torch.nn.modules.module.ModuleAttributeError: no attribute 'x'", "exception"),
        ("KeyboardInterrupt", "exception"),
    ],
)
def test_texts_that_were_not_in_the_first_table(line: str, kind: str) -> None:
    assert classify(1, 0, [_HEAD, _FRAME, line]).kind == kind


@pytest.mark.parametrize(
    ("code", "lines", "kind"),
    [
        (137, ["train.sh: line 3: 4711 Killed  python train.py"], "killed"),
        (143, ["Terminated"], "killed"),
        (139, ["Segmentation fault (core dumped)"], "crash"),
        (135, ["Bus error (core dumped)"], "crash"),
        (
            134,
            ["[rank1] Watchdog caught collective operation timeout: WorkNCCL"],
            "collective_timeout",
        ),
        (127, ["train.sh: line 3: pyhton: command not found"], "usage"),
        (126, ["train.sh: Permission denied"], "usage"),
        (130, ["KeyboardInterrupt"], "killed"),
        (255, ["no config"], "exit"),
        (200, [], "exit"),
    ],
)
def test_a_shell_passes_on_how_its_program_ended(code: int, lines: list[str], kind: str) -> None:
    assert classify(code, 0, lines).kind == kind


_TORCH_AT_EXIT = (
    "[rank0]:[W1121 15:01:02.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT "
    "been destroyed before we destruct ProcessGroupNCCL. Call destroy_process_group() before exit"
)


def test_what_torch_says_at_every_end_is_no_reason_for_one() -> None:
    assert classify(3, 0, ["boom", _TORCH_AT_EXIT]).kind == "exit"
    assert last_said(["boom", "", _TORCH_AT_EXIT, " "]) == "boom"
    assert last_said([_TORCH_AT_EXIT]) == last_said([]) == ""


def test_a_script_that_ends_itself_says_why_in_its_own_words() -> None:
    assert classify(1, 0, ["Loss is nan, stopping training"]).kind == "nan"
    assert classify(1, 0, ["cannot write: No space left on device"]).kind == "storage"
