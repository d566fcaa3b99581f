"""In which libraries a sleeping main thread stands, from the words of its stack."""

import os
import struct
import subprocess
import sys
from pathlib import Path

from everstep.launch.inspection.sources.native_stacks import libraries_on_stack, nearest

_CODE = {0x1000: "libc.so.6", 0x2000: "libstdc++.so.6.0.30", 0x3000: "libtorch_cpu.so"}


def _stack(*words: int) -> bytes:
    return struct.pack(f"={len(words)}Q", *words)


def test_the_nearest_library_that_is_not_the_systems_comes_first() -> None:
    stack = _stack(7, 0x1000, 0x2000, 0, 0x3000, 0x1000, 0x4000)
    found = nearest(stack, lambda one: {**_CODE, 0x4000: "python3.11"}.get(one, ""))
    assert found == ("libtorch_cpu.so", "python3.11")


def test_a_name_that_is_no_file_name_is_left_out() -> None:
    assert nearest(_stack(1, 2), {1: "a b\x1b[2J", 2: "[vdso]"}.__getitem__) == ()


def test_a_stack_that_was_cut_within_a_word_is_read_to_there() -> None:
    assert nearest(_stack(0x3000, 0x1000)[:-3], _CODE.__getitem__) == ("libtorch_cpu.so",)


def test_a_process_that_sleeps_in_python_is_in_its_interpreter() -> None:
    program = "import threading; print(flush=True); threading.Event().wait()"
    line = [sys.executable, "-I", "-c", program]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            place = Path(f"/proc/{process.pid}/syscall")
            while not (told := place.read_text()).startswith("202 "):
                os.sched_yield()
            assert "python" in libraries_on_stack(process.pid, told)[0]
        finally:
            process.kill()
