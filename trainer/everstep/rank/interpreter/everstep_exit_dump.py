"""Exit dump: what torch's recorder knows, written when a rank ends because others did not come.

NCCL's process group writes such a dump itself, gloo's does not. Run in the rank by its own
interpreter, from 3.8 on, with the standard library only.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing's, whose import takes milliseconds
    from collections.abc import Callable
    from types import TracebackType

_FOLDER = "EVERSTEP_RANK_FILES"
# The rank follows: `everstep hang FOLDER --prefix exit-` reads them as they are.
PREFIX = "exit-"
_KEY = "everstep_ended"
# In the dump of all other backends: what NCCL's recorder knows, where torch is built for it.
_OF_NCCL = "everstep_nccl"
# A recorder of 2,000 operations tells 1 MB; nobody waits for a rank that writes more at its end.
_BYTES_MAX = 16 * 1024 * 1024
_CAUSES_MAX = 8
_FRAMES_MAX = 24
# How torch's errors begin that others cause, and those of gloo, which are plain RuntimeErrors.
_OF_OTHERS = ("Dist", "ProcessGroup")
_TEXTS = ("gloo", "NCCL", "onnection closed by peer", "onnection reset by peer", "Barrier")
_TIMED_OUT = ("imed out", "timeout", "Timeout", "failed to pass monitoredBarrier")
_C10D = "distributed_c10d.py"
# torch's wrapper of each of its functions.
_WRAPPERS = ("wrapper", "_wait")


def dump_at_exit() -> None:
    """Have the rank write its dump, if it ends so; at any other end nothing is done."""
    import atexit

    atexit.register(_at_exit)


def _at_exit() -> None:
    try:
        folder, rank = os.environ.get(_FOLDER), os.environ.get("RANK", "")
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if folder and rank.isdigit() and isinstance(error, Exception) and _by_others(error):
            _write(os.path.join(folder, PREFIX + rank), error)
    except Exception:  # noqa: BLE001 - a rank that ends is not told of what is no fault of its own
        return


def _write(path: str, error: BaseException) -> None:
    import json
    import time

    at_ns = time.time_ns()
    others, nccl = _recorded("_dump_fr_trace_json"), _recorded("_dump_nccl_trace_json")
    if not (others or nccl) or len(others) + len(nccl) > _BYTES_MAX:
        return
    call, frames = _where(error.__traceback__)
    told = {"at_ns": at_ns, "timed_out": _timed_out(error), "call": call, "frames": frames}
    beside = f', "{_OF_NCCL}": {nccl}' if nccl else ""
    rest = others[1:].lstrip() if others else '"entries": []}'
    draft = f"{path}.new-{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f'{{"{_KEY}": {json.dumps(told)}{beside}, {rest}')
    os.rename(draft, path)


def _recorded(name: str) -> str:
    """Return a recorder as JSON; "" where this torch has none, or the script uses no torch."""
    module = sys.modules.get("torch._C._distributed_c10d")
    dump: Callable[[], str | bytes] | None = getattr(module, name, None)
    if dump is None:
        return ""
    told = dump()
    text = (told.decode() if isinstance(told, bytes) else told).strip()
    return text if text.startswith("{") and len(text) > len("{}") else ""


def _by_others(error: BaseException) -> bool:
    return any(
        type(one).__name__.startswith(_OF_OTHERS) or any(text in str(one) for text in _TEXTS)
        for one in _causes(error)
    )


def _timed_out(error: BaseException) -> bool:
    return any(text in str(one) for one in _causes(error) for text in _TIMED_OUT)


def _causes(error: BaseException) -> "list[BaseException]":
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and len(found) < _CAUSES_MAX:
        found.append(one)
        one = one.__cause__ or one.__context__
    return found


def _where(traceback: "TracebackType | None") -> "tuple[str, list[str]]":
    """Return the function of torch.distributed that raised, and the frames, innermost first."""
    call, frames = "", []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file = os.path.basename(code.co_filename)
        if file == _C10D and code.co_name not in _WRAPPERS:
            call = call or code.co_name
        frames.append(f"{file}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return call, frames[: -_FRAMES_MAX - 1 : -1]
