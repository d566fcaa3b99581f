"""The command driver with a real program: what it is told, and everything it may do wrong."""

import asyncio
import gc
import json
import os
import signal
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.command import CommandDriver
from everstep_controller.drivers.port import DriverError
from fakes.waits import eventually

PROGRAM = Path(__file__).with_name("isolation_program.py")


def driver(file: Path, how: str = "well") -> CommandDriver:
    return CommandDriver([sys.executable, str(PROGRAM), str(file), how])


def test_it_withholds_frees_and_reads_and_leaves_alone_what_others_hold(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text('{"n2": {"reason": "ann: cables", "ours": false}}')

    async def scenario() -> None:
        site = driver(file)
        wanted = [
            WantedIsolation("n0", ("operator",), "operator: ann: a $(reboot) fan"),
            WantedIsolation("n1", ("automation",), "automation: Xid 79"),
            WantedIsolation("n2"),
            WantedIsolation("unknown"),
            WantedIsolation("elsewhere", ("operator",), "operator: ann: a fan"),
        ]
        applied = await site.apply(wanted)
        assert applied.now == {
            "n0": Hold("operator: ann: a $(reboot) fan", ours=True),
            "n1": Hold("automation: Xid 79", ours=True),
            "n2": Hold("ann: cables", ours=False),
        }
        assert applied.failures == {"unknown": "Invalid node name specified"}
        assert applied.unmanaged == {"elsewhere"}
        assert (await site.apply([WantedIsolation("n0")])).now == {"n0": None}
        view = await site.read()
        assert {node: hold.ours for node, hold in view.holds.items()} == {"n1": True, "n2": False}

    asyncio.run(scenario())
    calls = [json.loads(line) for line in Path(f"{file}.calls").read_text().splitlines()]
    assert [call["call"] for call in calls] == ["apply", "apply", "read"]
    assert calls[0]["wanted"]["n1"] == {
        "withheld": True,
        "owners": ["automation"],
        "reason": "automation: Xid 79",
    }


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("refuse", "exit code 3: slurmctld does not answer"),
        ("garbage", "its answer cannot be used"),
        ("flood", "it wrote more than"),
    ],
)
def test_what_a_program_does_wrong_is_one_sentence(tmp_path: Path, how: str, sentence: str) -> None:
    with pytest.raises(DriverError) as error:
        asyncio.run(driver(tmp_path / "s", how).read())
    assert sentence in str(error.value)
    assert "\x1b" not in str(error.value)


def test_a_program_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(CommandDriver([str(tmp_path / "none")]).read())


def test_a_program_that_reads_nothing_may_still_answer(tmp_path: Path) -> None:
    program = tmp_path / "answer"
    program.write_text("#!/bin/sh\nexec 0<&-\necho '{\"holds\": {}}'\n")
    program.chmod(0o755)
    assert asyncio.run(CommandDriver([str(program)]).read()).holds == {}


def test_one_that_is_cut_short_is_ended_with_its_children(tmp_path: Path) -> None:
    program, pids = tmp_path / "hang", tmp_path / "pids"
    program.write_text(
        "#!/bin/sh\ncat > /dev/null\nsleep 3600 &\n"
        f"echo $$ $! > {pids}.new\nmv {pids}.new {pids}\nwait\n"
    )
    program.chmod(0o755)

    async def scenario() -> None:
        call = asyncio.create_task(CommandDriver([str(program)]).read())
        await eventually(pids.exists)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        for pid in map(int, pids.read_text().split()):
            await eventually(partial(_is_gone, pid))

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_what_a_program_leaves_running_keeps_nobody_waiting_for_its_answer(tmp_path: Path) -> None:
    program, pid = tmp_path / "answer", tmp_path / "pid"
    # As ssh leaves its master connection: with the output of whoever started it.
    program.write_text(f"#!/bin/sh\nsleep 3600 &\necho $! > {pid}\necho '{{\"holds\": {{}}}}'\n")
    program.chmod(0o755)
    try:
        assert asyncio.run(CommandDriver([str(program)]).read()).holds == {}
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_one_that_is_cut_short_after_its_end_is_ended_with_what_it_left(tmp_path: Path) -> None:
    program, pid = tmp_path / "answer", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\nsleep 3600 &\necho $! > {pid}.new\nmv {pid}.new {pid}\n")
    program.chmod(0o755)

    async def scenario() -> None:
        call = asyncio.create_task(CommandDriver([str(program)]).read())
        await eventually(pid.exists)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await eventually(partial(_is_gone, int(pid.read_text())))

    asyncio.run(asyncio.wait_for(scenario(), 20))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # What nobody waits for stays as a zombie.
    return ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_what_one_wrote_that_wrote_too_much_is_not_kept() -> None:
    endless = CommandDriver(["/bin/sh", "-c", "exec head -c 70000000 /dev/zero"])
    gc.disable()
    tracemalloc.start()
    try:
        with pytest.raises(DriverError, match="it wrote more than"):
            asyncio.run(endless.read())
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 8 << 20
