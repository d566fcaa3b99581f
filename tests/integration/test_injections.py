"""Faults on purpose in a real fleet: from the operator's command to the isolation and back."""

import json
import signal
from pathlib import Path

import pytest

from fakes.nvml import FakeDriver
from fakes.waits import wait_until
from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(240)

_PCI = "0000:3b:00.0"
_ALLOWED = ("fault_injection = true",)
# On a busy machine an agent may take longer to come back than a node may be silent.
_PATIENT = ("agent_return_s = 300.0",)
_PATIENCE_S = 60


def _injected(fleet: RealFleet) -> set[str]:
    """Return the open conditions that say they were injected; the machine may have real ones."""
    return {one.condition for one in fleet.findings("n0") if one.injected}


def _kernel_messages(fleet: RealFleet) -> list[str]:
    return list(fleet.detail("n0").kernel_messages)


def _state(fleet: RealFleet) -> str:
    return fleet.detail("n0").summary.state


def _injection(fleet: RealFleet, number: int) -> str:
    listed = json.loads(fleet.everstep("inject", "n0", "--list", "--json").stdout)
    states = {one["injection"]: one["state"] for one in listed["injections"]}
    return str(states[f"n0/inject/{number}"])


def test_an_injected_xid_isolates_the_node_and_says_everywhere_that_it_was_injected() -> None:
    with running_fleet("n0", agent_lines=_ALLOWED) as fleet:
        done = fleet.everstep("inject", "n0", f"xid:79@{_PCI}", "--for", "10m", "--reason", "drill")
        assert done.returncode == 0, done.stderr
        assert "n0: Xid 79 of GPU 0000:3b:00.0: a line beside the kernel log" in done.stdout
        fleet.until("isolation", _PATIENCE_S, lambda: _state(fleet) == "repairing")
        assert _injected(fleet) == {"XidFatal"}
        assert "[injected]" in fleet.everstep("why", "n0").stdout
        assert "injected on purpose" in fleet.everstep("findings").stdout
        events = fleet.everstep("events").stdout
        assert "injects xid:79@0000:3b:00.0 into n0 for 600 s: drill" in events
        assert "GPU has fallen off the bus [injected]" in events
        # Kernel messages come beside the findings that are made of them.
        fleet.until("its line", _PATIENCE_S, lambda: bool(_kernel_messages(fleet)))
        (line,) = _kernel_messages(fleet)
        assert "(written by a process)" in line
        checked = fleet.check("n0", "--nagios")
        assert checked.returncode == 2
        assert "[injected]" in checked.stdout

        cleared = fleet.everstep("inject", "n0", "--clear", "n0/inject/1")
        assert cleared.returncode == 0, cleared.stderr
        assert _injection(fleet, 1) == "ended"
        fleet.until("release", _PATIENCE_S, lambda: _state(fleet) in ("probation", "healthy"))
        fleet.until("no finding", _PATIENCE_S, lambda: _injected(fleet) == set())


def test_an_injection_ends_by_itself_and_not_only_when_the_agent_lives() -> None:
    with running_fleet("n0", agent_lines=_ALLOWED) as fleet:
        fleet.everstep("inject", "n0", f"xid:79@{_PCI}", "--for", "1s")
        fleet.until("its end", _PATIENCE_S, lambda: _injection(fleet, 1) == "ended")
        fleet.until("recovery", _PATIENCE_S, lambda: _injected(fleet) == set())

        fleet.everstep("inject", "n0", f"xid:48@{_PCI}", "--for", "10m")
        fleet.until("the finding", _PATIENCE_S, lambda: "XidFatal" in _injected(fleet))
        # Findings are on the disk of a successor only once they were written there.
        fleet.until("the note", _PATIENCE_S, lambda: b"inject/2" in _memory(fleet))
        killed = fleet.agents.pop("n0")
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(20)
        fleet.start_agent("n0")
        fleet.until("its end", _PATIENCE_S, lambda: _injection(fleet, 2) == "ended")
        fleet.until("recovery", _PATIENCE_S, lambda: _injected(fleet) == set())


def _memory(fleet: RealFleet) -> bytes:
    paths = (fleet.folder / "n0").glob("agent.sqlite*")
    return b"".join(path.read_bytes() for path in paths)


def test_what_cannot_be_injected_is_refused_with_a_sentence() -> None:
    with running_fleet("n0") as fleet:
        refused = fleet.everstep("inject", "n0", "xid:79")
        assert refused.returncode == 1
        assert "set fault_injection = true in its agent's configuration" in refused.stderr
        unknown = fleet.everstep("inject", "n1", "xid:79")
        assert unknown.returncode == 2
        assert "no node named 'n1'" in unknown.stderr
        killed = fleet.agents.pop("n0")
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(20)
        fleet.until("a lost stream", _PATIENCE_S, lambda: not _connected(fleet))
        away = fleet.everstep("inject", "n0", "xid:79")
        assert away.returncode == 1
        assert "n0 is not connected; 'everstep why n0' tells since when" in away.stderr


def _connected(fleet: RealFleet) -> bool:
    return fleet.detail("n0").summary.connected


def test_a_driver_that_is_made_to_hang_is_found_and_answers_again(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, gpus=2)
    variables = dict(variable.split("=", 1) for variable in driver.command[1:3])
    # A driver that answers must not miss its deadline on a busy machine.
    lines = (*_ALLOWED, "gpu_first_deadline_s = 4.0", "gpu_deadline_s = 4.0")
    with running_fleet("n0", agent_lines=lines, variables=variables) as fleet:
        done = fleet.everstep("inject", "n0", "hang:nvml", "--for", "10m")
        assert done.returncode == 0, done.stderr
        fleet.until("the finding", _PATIENCE_S, lambda: "DriverHang" in _injected(fleet))
        fleet.everstep("inject", "n0", "--clear")
        fleet.until("recovery", _PATIENCE_S, lambda: "DriverHang" not in _injected(fleet))
    driver.close()


def test_slow_training_stands_still_for_a_share_of_the_time_and_goes_on_afterwards() -> None:
    with running_fleet("n0", agent_lines=_ALLOWED, core_lines=_PATIENT) as fleet:
        assert "no training process" in fleet.everstep("inject", "n0", "slow:50%").stderr
        fleet.launch(steps=100_000, step_s=0.01)
        fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > 5)
        rank = fleet.rank("n0")
        assert rank is not None
        done = fleet.everstep("inject", "n0", "slow:50%", "--for", "10m")
        assert done.returncode == 0, done.stderr
        fleet.until("it stands still", _PATIENCE_S, lambda: _stopped(rank.pid))
        # Killed in the middle, an agent cannot let it go on; its guard does.
        killed = fleet.agents.pop("n0")
        wait_until(lambda: _stopped(rank.pid))
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(20)
        fleet.until("it goes on", _PATIENCE_S, lambda: not _stopped(rank.pid))
        fleet.start_agent("n0")
        fleet.until("its end", _PATIENCE_S, lambda: _injection(fleet, 2) == "ended")
        before = fleet.step()
        fleet.until("more steps", _PATIENCE_S, lambda: fleet.step() > before)


def _stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    return text.rpartition(") ")[2].startswith("T")
