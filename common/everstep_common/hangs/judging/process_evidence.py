"""Process evidence: what state and stack of a rank's process say about a hang. Pure."""

import re
from itertools import takewhile

from everstep_common.failures.classification import Side, side
from everstep_common.failures.texts import UNFIT_DATA, kind_of
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.printable import printable, quoted

# In the kernel for longer than the slowest storage that still answers takes.
UNINTERRUPTIBLE_MS = 10_000
_SIGKILL = 9
# What a process says that ends because others did not come: torch's watchdog and heartbeat monitor
# of NCCL, gloo, the store. Texts of torch 2.4 to 2.13.
_GAVE_UP = re.compile(
    r"Timed out waiting|[Tt]imeout|timed out|heartbeat|[Ww]atchdog|Connection closed by peer|"
    r"Connection reset by peer|collective operation"
)
# Frames of torch in which a rank waits for others; innermost first, so one of the first few.
_COMMUNICATION = re.compile(
    r"(?:distributed_c10d|c10d_logger|functional_collectives|_functional_collectives|nccl|"
    r"_collective_utils|streams)\.pyi?:\d+ |"
    r"\b(?:all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|barrier|send|recv|"
    r"batch_isend_irecv|monitored_barrier)\b|:\d+ synchronize$"
)
_P2P = re.compile(r":\d+ (?:i?send|i?recv|batch_isend_irecv)$")
# Libraries of torch in which a main thread waits for others, that by which Python calls them, and
# of the interpreter.
_OF_TORCH = re.compile(r"libtorch|libgloo|libc10")
_BINDING = re.compile(r"libtorch_python")
_INTERPRETER = re.compile(r"(?:lib)?python")
# What is loaded where a process uses a GPU (torch's builds for CUDA have NCCL loaded always), and
# what a main thread waits in for its GPU.
_OF_GPUS = frozenset({"cuda_driver", "rccl"})
_GPU_BACKENDS = frozenset({"nccl", "rccl"})
_FOR_GPU = re.compile(r"libcuda|libnccl|librccl|libhsa|libamdhip|libnvshmem")
_INNERMOST = 6
# Where a thread stands in the kernel that waits for another one, as in the `wait` of a handle.
_FOR_A_THREAD = re.compile(r"_*futex")
# Functions of Linux in which who reads a file or a socket sleeps, also where a signal wakes it:
# file systems in user space (S3, GCS, JuiceFS), NFS, Lustre, Ceph, GPFS; pages; sockets and pipes.
_FOR_DATA = re.compile(
    r"request_wait_answer|fuse_|nfs|rpc_wait|ll_|cl_|ptlrpc|ceph|cxiWait|gpfs|netfs|folio_wait|"
    r"wait_on_page|io_schedule|sk_wait_data|wait_woken|unix_stream|(?:anon_)?pipe_|wait_for_partner"
)
# Those of file systems and disks alone, not of sockets and pipes.
_FOR_STORAGE = re.compile(
    r"request_wait_answer|fuse_|nfs|rpc_wait|ll_|cl_|ptlrpc|ceph|cxiWait|gpfs|netfs|folio_wait|"
    r"wait_on_page|io_schedule|blk_|bio_|xfs_|ext4_|btrfs_|jbd2_"
)
# Functions of Linux in which who waits for its peers or for a thread of its own sleeps: sockets,
# pipes, several of them at once, locks.
_FOR_PEERS = re.compile(
    r"_*(?:futex|wait_woken|sk_wait|skb_wait|tcp_|unix_|inet_csk|poll_schedule|do_poll|do_sys_poll|"
    r"do_select|do_epoll|ep_poll|io_cqring|anon_pipe_|pipe_|wait_for_partner|rdma_|ib_uverbs)"
)
# Of a second some threads beside a main thread that stands still may take so much.
_IDLE_PERCENT = 25
# A loop that only computes takes none; whoever builds something takes thousands a second, and
# hundreds where the kernel gives memory in pieces of 2 MiB.
_WORKING_FAULTS = 16
# Frames that a sentence has room for, and how many of them are innermost.
_FRAMES_TOLD, _INNERMOST_TOLD = 5, 2
# More than a look makes a rank write, and less than what is sent in a second over 1 Mbit/s.
_SENT_MIN_BYTES = 64 * 1024


def gave_up_waiting(process: ProcessFacts) -> bool:
    """Return whether a rank ended because others did not come: it waited, like they do."""
    ending = process.ending
    if ending is None or ending.signal == _SIGKILL:
        return False
    kind = ending.kind or kind_of(ending.text)
    return side(kind) in (Side.CONSEQUENCE, Side.WAITED) or bool(_GAVE_UP.search(ending.text))


def timed_out(process: ProcessFacts) -> bool:
    """Return whether a rank ended by the timeout of a collective."""
    ending = process.ending
    return ending is not None and side(ending.kind or kind_of(ending.text)) is Side.WAITED


def ended_by_mismatch(process: ProcessFacts) -> bool:
    """Return whether a rank ended because it got other data than what it had called for.

    The program calls operations that do not fit together; this rank or another departed.
    """
    ending = process.ending
    if ending is None:
        return False
    return side(ending.kind) is Side.UNFIT or bool(UNFIT_DATA.search(ending.text))


def process_class(report: RankHangReport) -> tuple[HangClass, str] | None:
    """Return in which way a process cannot go on by itself, in words too; None if it can."""
    process = report.process
    if process.state is ProcessState.DEAD or process.ending is not None:
        follows = gave_up_waiting(process) or ended_by_mismatch(process)
        return None if follows else (HangClass.DEAD, _ending(process))
    if process.state is ProcessState.STOPPED:
        return HangClass.FROZEN, "its process is stopped (SIGSTOP, a debugger or a frozen cgroup)"
    if process.state is ProcessState.UNINTERRUPTIBLE and process.state_for_ms >= UNINTERRUPTIBLE_MS:
        if waits_for_storage(process):
            return HangClass.STORAGE, storage_words(process)
        where = f" in {printable(process.wchan)}" if process.wchan else ""
        seconds = process.state_for_ms // 1000
        return HangClass.FROZEN, f"its process is in the kernel{where}, unbroken for {seconds} s"
    return None


def waits_for_storage(process: ProcessFacts) -> bool:
    """Return whether the main thread waits in the kernel for what a file system answers."""
    if process.state not in (ProcessState.UNINTERRUPTIBLE, ProcessState.SLEEPING):
        return False
    of_file = process.state is ProcessState.UNINTERRUPTIBLE and bool(process.file)
    return of_file or bool(_FOR_STORAGE.match(process.wchan))


def storage_words(process: ProcessFacts) -> str:
    """Return what a process waits for: the file and its mount as far as known, and the kernel's."""
    file = f"for {quoted(process.file)}" if process.file else "for a file that the kernel hides"
    mount = f" on {printable(process.mount)}" if process.mount else ""
    place = f" in {printable(process.wchan)}" if process.wchan else ""
    seconds = process.state_for_ms // 1000
    lasts = f", unbroken for {seconds} s" if seconds else ""
    return f"it waits {file}{mount}: its process is in the kernel{place}{lasts}"


def waits_for_data(process: ProcessFacts) -> bool:
    """Return whether the main thread waits in the kernel for what a file or a peer may answer."""
    return process.state is ProcessState.UNINTERRUPTIBLE or bool(_FOR_DATA.match(process.wchan))


def suspicion(report: RankHangReport) -> tuple[HangClass, str] | None:
    """Return what else says that a process does not go on; alone it proves nothing.

    A rank that waits can look the same, so it counts only for one that the others wait for.
    """
    process = report.process
    if process.gil_held:
        still = ", and its native stack does not change" if process.native_stack_unchanged else ""
        works = ", and takes memory or writes meanwhile" if works_with_gil(process) else ""
        where = _native_place(process)
        return HangClass.GIL_HELD, f"a thread holds the GIL{still}{works}{where}"
    if process.answers_ping is False:
        return HangClass.FROZEN, "its process answers nothing, not even a ping that needs no GIL"
    return None


def works_with_gil(process: ProcessFacts) -> bool:
    """Return whether whoever holds the GIL builds or writes something: that comes to an end."""
    taken, written = process.page_faults or 0, process.written_bytes or 0
    return bool(process.gil_held) and (taken >= _WORKING_FAULTS or written >= _SENT_MIN_BYTES)


def stands_with_gil(process: ProcessFacts) -> bool:
    """Return whether whoever holds the GIL stands still, and does not wait for other threads.

    Of a rank of torch the other threads are no evidence: those of NCCL compute all the time.
    """
    held = process.gil_held is True and process.native_stack_unchanged is True
    of_torch = process.answers_ping is not None
    return held and (of_torch or (process.cpu_percent or 0) < _IDLE_PERCENT)


def waits_for_peers(report: RankHangReport) -> bool:
    """Return whether the main thread sleeps where one waits for others, as far as is told."""
    process = report.process
    if process.state is not ProcessState.SLEEPING or process.gil_held:
        return False
    told = process.wchan.strip("0")
    return not told or bool(_FOR_PEERS.match(told)) or in_communication(report) is True


def _native_place(process: ProcessFacts) -> str:
    """Return in which library the main thread is, in words; "" where it is the interpreter."""
    innermost = process.native_stack[0] if process.native_stack else ""
    if not innermost or _INTERPRETER.match(innermost):
        return ""
    return f"; its main thread is in {printable(innermost)}"


def in_communication(report: RankHangReport) -> bool | None:
    """Return whether a rank's main thread is inside of communication; None: it is not known.

    Where it uses a GPU, it may wait in any line for a collective that it has enqueued before.
    """
    stack = report.process.python_stack
    if any(_COMMUNICATION.search(frame) for frame in stack[:_INNERMOST]):
        return True
    if _waits_in_torch(report):
        return True
    unknown = _may_wait_for_gpu(report) or _may_wait_for_handle(report)
    return False if stack and not unknown else None


def _uses_gpu(report: RankHangReport) -> bool:
    loaded = {library.name for library in report.libraries}
    return report.backend in _GPU_BACKENDS or bool(loaded & _OF_GPUS)


def _may_wait_for_gpu(report: RankHangReport) -> bool:
    """Return whether the main thread may wait for its GPU: most wait by asking it all the time."""
    process = report.process
    if not _uses_gpu(report):
        return False
    if process.state is not ProcessState.SLEEPING or not process.native_stack:
        return process.state is not ProcessState.UNINTERRUPTIBLE
    return any(_FOR_GPU.match(library) for library in process.native_stack)


def _waits_in_torch(report: RankHangReport) -> bool:
    """Return whether the main thread sleeps within torch's own C++, as in the `wait` of a handle.

    Not with NCCL: there it may wait so for the threads of the backward pass.
    """
    native = report.process.native_stack
    if not native or not _waits_for_thread(report):
        return False
    # A stack also has what stood there before; but Python is in torch only by way of its binding.
    inner = takewhile(lambda one: not _INTERPRETER.match(one), native)
    return bool(_OF_TORCH.match(native[0])) and any(map(_BINDING.match, inner))


def _may_wait_for_handle(report: RankHangReport) -> bool:
    """Return whether the main thread may be in the `wait` of a handle: nobody could read where."""
    return not report.process.native_stack and _waits_for_thread(report)


def _waits_for_thread(report: RankHangReport) -> bool:
    """Return whether the main thread of a rank of gloo waits for another one, as far as is told.

    Who sleeps for a time, or reads a pipe, is elsewhere, whatever the native stack still holds.
    """
    process = report.process
    by_gloo = report.backend == "gloo" or (not report.backend and not _uses_gpu(report))
    told = process.wchan.strip("0")
    waits = not told or bool(_FOR_A_THREAD.match(told))
    return by_gloo and process.state is ProcessState.SLEEPING and waits


def in_send_or_receive(report: RankHangReport) -> bool:
    """Return whether the Python stack is inside of a send or receive of torch."""
    return any(_P2P.search(frame) for frame in report.process.python_stack[:_INNERMOST])


def sends_data(report: RankHangReport) -> bool:
    """Return whether a rank is in communication and data leaves it meanwhile, as with gloo."""
    written = report.process.written_bytes or 0
    by_sockets = report.backend in ("", "gloo")
    return by_sockets and written >= _SENT_MIN_BYTES and in_communication(report) is True


def place(report: RankHangReport) -> str:
    """Return the innermost frames of the rank, and the outermost; "" without a stack.

    A rank that waits for its data loader is innermost in the library; where in the program that is,
    the outermost frames say, and the innermost of the script's own file.
    """
    frames = [printable(frame) for frame in report.process.python_stack]
    if len(frames) > _FRAMES_TOLD:
        until = 1 + len(frames) - _FRAMES_TOLD + _INNERMOST_TOLD
        frames[_INNERMOST_TOLD:until] = _left_out(frames, until)
    return " < ".join(frames)


def _left_out(frames: list[str], until: int) -> list[str]:
    """Return what stands for the frames in the middle: the script's own innermost, if it is one."""
    scripts = [_file(frame) for frame in frames if frame.endswith(" <module>")]
    script = scripts[-1] if scripts else _file(frames[-1])
    own = next((at for at, frame in enumerate(frames) if _file(frame) == script), until)
    if not _INNERMOST_TOLD <= own < until:
        return ["…"]
    before = ["…"] if own > _INNERMOST_TOLD else []
    return [*before, frames[own], *(["…"] if own < until - 1 else [])]


def _file(frame: str) -> str:
    return frame.partition(":")[0]


def where(report: RankHangReport) -> str:
    """Return where the rank is, as the end of a sentence about it; "" without a stack."""
    found = place(report)
    return f"; it is in {found}" if found else ""


def _ending(process: ProcessFacts) -> str:
    ending = process.ending
    if ending is None:
        return "its process is gone"
    how = f"was killed by signal {ending.signal}" if ending.signal else f"exited {ending.exit_code}"
    return f"its process {how}"
