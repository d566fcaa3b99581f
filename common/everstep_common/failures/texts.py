"""Failure texts: an ordered table from patterns in error messages to kinds of failure."""

import re

# What differs between two exceptions of the same cause: memory addresses, numbers of processes and
# ranks, temporary files, times, network addresses, ports and identifiers.
_VARYING = re.compile(
    r"0x[0-9a-fA-F]+|(?<=pid )\d+|(?<=pid\(s\) )\d[\d, ]*|(?<=rocess )\d+|"
    r"(?i:(?<=rank)[ =:]*\d+|(?<=\bport)[ =:]*\d+)|"
    r"/(?:tmp|var/tmp|dev/shm|run/user/\d+)/[^\s'\",;:)\]]+|"
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|"
    r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?:\]?:\d+|, \d+)?|(?<=\]:)\d+|(?<=[a-z]:)\d{4,5}\b|"
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
# All numbers: what differs between two errors for want of memory, which say how much there was.
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

# What a process says that got other data than what it had called for.
UNFIT_DATA = re.compile(
    r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected size|"
    r"Detected mismatch between collectives|Collectives differ in the following aspects"
)

# The first pattern that fits decides, so the special stand before the general.
# Texts: cudaGetErrorString of CUDA 12, torch 2.13, torch_npu, NCCL 2.27, gloo, XLA, Paddle 3,
# Megatron-LM, DeepSpeed and fairseq for losses, numpy 2, CPython 3.11, the kernel's mm/oom_kill.c,
# slurmstepd 23.
TEXTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    # Everstep's own error for a state of another model: an older state does not fit either.
    ("exception", re.compile(r"RestoreError: .*; restore it with the model and the options that")),
    ("state", re.compile(r"\beverstep\.[\w.]*(?:RestoreError|RefusedError)\b")),
    ("assertion", re.compile(r"device-side assert")),
    (
        "device_memory",
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|CUDA (?:driver )?error: out of memory|"
            r"Cuda failure \d* ?'?out of memory|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|"
            r"CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|Out of memory error on [GXN]PU|"
            r"(?:HIP|NPU|XPU) out of memory"
        ),
    ),
    (
        "device",
        re.compile(
            r"uncorrectable ECC|uncorrectable NVLink|Nvlink (?:uncorrectable )?error|"
            r"hardware stack error|no CUDA-capable device|GPU is lost|"
            r"fallen off the bus|system not yet initialized|driver initialization failed|"
            r"device is not ready|CUDA driver error: unknown error"
        ),
    ),
    (
        "storage",
        re.compile(
            r"Errno (?:5|28|30|107|116|117|121|122)\]|No space left on device|Stale file handle|"
            r"Input/output error|Remote I/O error|Disk quota exceeded|Read-only file system|"
            r"Transport endpoint is not connected|Structure needs cleaning"
        ),
    ),
    (
        "host_memory",
        re.compile(
            r"[Oo]ut of memory: Killed process|oom-kill:constraint|oom_kill event|"
            r"OOM Killed|MemoryError\b|Cannot allocate memory|can't allocate memory|"
            r"std::bad_alloc|out of shared memory"
        ),
    ),
    (
        "nan",
        re.compile(
            r"\bBadStepError\b|returned nan values in its|found NaN in local|"
            r"found Inf in local|is non-finite|"
            r"[Mm]inimum loss scale reached|loss scale already at minimum|"
            # Wordings of Lightning, detectron2, timm and of scripts themselves.
            r"(?i:(?:\b|_)loss(?:es)?\b[^.]{0,60}?(?:\bis|\bbecame|\bbecomes|\bwas|\bof|[=:])\s*"
            r"(?:nan|inf|infinite|infinity|not (?:a )?(?:finite|number))\b|"
            r"\bnan(?:s| or inf| values?)? (?:was |were )?(?:detected|encountered|found)\b|"
            r"\b(?:detected|encountered|got) (?:a )?nan\b|\bnan(?: or inf)? loss\b)"
        ),
    ),
    ("import", re.compile(r"ModuleNotFoundError|\bImportError\b|SyntaxError|IndentationError")),
    (
        "cuda",
        re.compile(
            r"CUDA error|Cuda failure|unhandled cuda error|CUBLAS_STATUS|CUDNN_STATUS|"
            r"cudaError[A-Z]|CUDA driver error|AcceleratorError|HIP error|hipError[A-Z]|"
            r"NPU (?:function )?error|ACL stream synchronize failed|No CUDA GPUs are available|"
            r"only supported with GPUs, no GPUs found"
        ),
    ),
    # A wrong use of NCCL, or a backend that this torch has not: all ranks raise it, so it does not
    # follow from another rank's death.
    (
        "exception",
        re.compile(
            r"ncclInvalid(?:Usage|Argument)|\bNCCL\b.*, invalid (?:usage|argum)|"
            r"Distributed package doesn't have \w+ built in|Unknown c10d backend"
        ),
    ),
    # Who gives up waiting, not who is waited for: torch 2.4 to 2.13, NCCL's watchdog and heartbeat
    # monitor, gloo, monitoredBarrier, the store.
    (
        "collective_timeout",
        re.compile(
            r"Timed out waiting \d+ ?ms for (?:send|recv)|Application timeout caused pair closure|"
            r"[Ww]atchdog caught collective operation timeout|"
            r"ran for \d+ milliseconds before timing out|"
            r"NCCL operations have failed or timed out|"
            r"\bHeartbeat monitor timed out|watchdog got stuck for \d+|"
            r"failed to pass monitoredBarrier|wait timeout after \d+ ?ms|"
            r"Timed out after \d+ seconds waiting for clients"
        ),
    ),
    # Ranks call operations that do not fit together: gloo's transport, and torch's own check with
    # TORCH_DISTRIBUTED_DEBUG=DETAIL.
    ("collective_mismatch", UNFIT_DATA),
    (
        "collective",
        re.compile(
            r"\bNCCL\b|\bnccl[A-Z]\w*Error|\bgloo\b|ProcessGroup|TCPStore|"
            r"DistNetworkError|DistStoreError|DistBackendError|collective operation|"
            r"Connection (?:closed|reset) by peer|c10d|monitoredBarrier|"
            r"client socket has timed out|\bSocket Timeout\b|Transport retry count exceeded|"
            r"HCCL|Broken pipe"
        ),
    ),
    (
        "network",
        re.compile(
            r"gaierror|Max retries exceeded|[Nn]ame resolution|Name or service not known|"
            r"Connection (?:refused|timed out|aborted)|ConnectionError|\bReadTimeout|"
            r"No route to host|Network is unreachable|\b50[234] Server Error|\(SlowDown\)"
        ),
    ),
    ("killed", re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: Killed")),
    ("crash", re.compile(r"DataLoader worker \(pid \d+\) is killed by signal")),
    ("assertion", re.compile(r"\bAssertionError\b")),
)


def kind_of(text: str) -> str:
    """Return the kind of failure that a text tells of; empty where it tells of none."""
    return next((kind for kind, pattern in TEXTS if pattern.search(text)), "")


def unvarying(kind: str, exception: str) -> str:
    """Return what an exception says each time that it comes from the same place."""
    varying = _NUMBER if kind == "device_memory" else _VARYING
    return varying.sub("…", exception)
