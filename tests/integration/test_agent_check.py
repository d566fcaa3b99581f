"""`everstep-agent check` and `inventory` as processes, with no environment to lean on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel import KernelLine, judge_kernel
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.judging.judgement import Faulty
from fakes.health_service import no_look, served
from fakes.nvml import FakeDriver
from fakes.waits import wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path: the name of a socket in it has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="es") as path:
        yield Path(path)


def _config(folder: Path, *lines: str) -> Path:
    (folder / "kernel.log").touch()
    file = folder / "agent.toml"
    text = [
        'node = "n1"',
        f'data_folder = "{folder / "data"}"',
        f'kernel_log = "{folder / "kernel.log"}"',
        f'sysfs = "{folder / "sys"}"',
        *lines,
        f'[jobs]\nruntime_folder = "{folder}"\n',
    ]
    file.write_text("\n".join(text), encoding="utf-8")
    return file


def _run(
    folder: Path, *words: str, variables: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run a command without an environment, as a prolog does."""
    path = ":".join(entry for entry in sys.path if entry)
    command = [sys.executable, "-m", "everstep_agent.main", *words]
    return subprocess.run(
        ["/usr/bin/env", "-i", f"PYTHONPATH={path}", *variables, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )


def _check(
    folder: Path, *words: str, variables: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    return _run(folder, "check", *words, variables=variables)


def _stuck(folder: Path) -> tuple[Path, str]:
    """Return a configuration whose reader waits as for a file on a dead server, and its path."""
    config = _config(folder)
    config.write_text(f"# stuck\n{config.read_text()}")
    (folder / "sitecustomize.py").write_text(f"""
import pathlib, threading, tomllib
loads = tomllib.loads

def stuck(text):
    if text.startswith("# stuck"):
        pathlib.Path({str(folder / "reads")!r}).touch()
        threading.Event().wait()
    return loads(text)

tomllib.loads = stuck
""")
    return config, os.pathsep.join([str(folder), *(entry for entry in sys.path if entry)])


def test_a_healthy_node_passes_without_an_agent_and_without_an_environment(folder: Path) -> None:
    file = _config(folder)
    done = _check(folder, "--config", str(file), "--only", "gpu,net", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["status"], document["asked"]) == ("OK", "probes")
    assert document["notes"][0] == "no agent runs here"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "gpux"], "no group 'gpux'; did you mean gpu? known: gpu, ib, net"),
        (["--deadline", "soon"], "expected 1 to 3600 seconds, got 'soon'"),
        (["--nagios", "--json"], "not allowed with"),
    ],
)
def test_a_wrong_command_line_is_unknown_and_never_critical(
    folder: Path, words: list[str], told: str
) -> None:
    done = _check(folder, *words)
    assert done.returncode == 3
    assert told in done.stderr
    assert done.stdout == ""


def test_a_wrong_configuration_is_unknown_to_programs_and_told_to_operators(folder: Path) -> None:
    done = _check(folder, "--config", "/nowhere.toml", "--nagios")
    assert done.returncode == 3
    assert done.stdout.startswith("EVERSTEP UNKNOWN - probe check: wrong configuration: /nowhere")
    assert "/nowhere.toml: cannot be read" in done.stderr


def test_who_asks_for_the_inventory_alone_hears_that_none_is_expected(folder: Path) -> None:
    file = _config(folder)
    done = _check(folder, "--config", str(file), "--only", "inventory", "--json")
    assert done.returncode == 0, done.stderr
    assert any(
        note.startswith("no inventory is expected") for note in json.loads(done.stdout)["notes"]
    )


def test_an_interrupted_check_ends_without_a_word(folder: Path) -> None:
    config, path = _stuck(folder)
    command = [sys.executable, "-m", "everstep_agent.main", "check"]
    check = subprocess.Popen(
        [*command, "--config", str(config)],
        env={"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Its handlers stand when it reads its configuration.
    wait_until((folder / "reads").exists)
    check.send_signal(signal.SIGINT)
    assert check.wait(30) == 130
    assert check.communicate() == (b"", b"")


def test_a_driver_that_hangs_does_not_keep_the_check(folder: Path) -> None:
    driver = FakeDriver(folder, gpus=2)
    driver.hang(True)
    file = _config(folder)
    words = ("--config", str(file), "--only", "gpu", "--deadline", "3", "--nagios")
    done = _check(folder, *words, variables=driver.command[1:3])
    driver.hang(False)
    driver.close()
    assert done.returncode == 3
    assert done.stdout.startswith("EVERSTEP UNKNOWN - DriverSilent on driver/nvidia: ")


def test_the_deadline_holds_even_when_the_command_itself_is_stuck(folder: Path) -> None:
    config, path = _stuck(folder)
    words = ("--config", str(config), "--deadline", "1", "--nagios")
    done = _check(folder, *words, variables=(f"PYTHONPATH={path}",))
    assert done.returncode == 3
    assert "the deadline of 1 s has passed" in done.stdout


def test_a_kernel_log_that_blocks_is_named_and_the_rest_is_read(folder: Path) -> None:
    file = _config(folder)
    (folder / "kernel.log").unlink()
    os.mkfifo(folder / "kernel.log")
    done = _check(folder, "--config", str(file), "--deadline", "3", "--json")
    assert done.returncode == 3
    (unread,) = json.loads(done.stdout)["unread"]
    assert unread["probe"] == "kernel_log"


def test_a_lost_gpu_is_looked_at_as_often_as_its_condition_asks(folder: Path) -> None:
    driver = FakeDriver(folder, gpus=2)
    driver.set(1, lost=1)
    file = _config(folder)
    words = ("--config", str(file), "--only", "gpu", "--fail-on", "critical", "--nagios")
    done = _check(folder, *words, variables=driver.command[1:3])
    driver.close()
    assert done.returncode == 2
    assert "GpuLost on gpu/" in done.stdout


def test_what_an_agent_reads_rarely_is_judged_by_a_single_check_as_well(folder: Path) -> None:
    driver = FakeDriver(folder, gpus=4)
    driver.set(0, pcie_width=8)
    driver.set(1, links_down=1)
    driver.set(2, fabric_state=2)
    file = _config(folder)
    words = ("--config", str(file), "--only", "gpu", "--json", "--deadline", "20")
    done = _check(folder, *words, variables=driver.command[1:3])
    driver.close()
    report = json.loads(done.stdout)
    found = {(one["condition"], one["component"][-4:]) for one in report["findings"]}
    assert {("GpuPcieWidth", "00.0")} <= found
    assert {one[0] for one in found} >= {"GpuPcieWidth", "NvlinkDown", "GpuFabricNotJoined"}
    assert "NvlinkErrors" in {one["probe"] for one in report["not_judged"]}
    assert report["answered"] == ["4 of 4 GPUs"]


def test_uncorrected_errors_of_caches_are_found_apart_from_those_of_memory(folder: Path) -> None:
    driver = FakeDriver(folder, gpus=2)
    driver.set(0, sram_parity=1, sram_parity_aggregate=3)
    driver.set(1, ecc_uncorrected=1)
    words = ("--config", str(_config(folder)), "--only", "gpu", "--json", "--deadline", "20")
    done = _check(folder, *words, variables=driver.command[1:3])
    driver.close()
    found = {one["condition"]: one for one in json.loads(done.stdout)["findings"]}
    assert found.keys() >= {"GpuSramUncorrected", "GpuEccUncorrected"}
    sram = found["GpuSramUncorrected"]
    assert sram["component"] != found["GpuEccUncorrected"]["component"]
    assert sram["evidence"].startswith("1 of parity and 0 of more bits than one (SEC-DED) since")
    assert sram["evidence"].endswith("; 3 and 0 ever")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("mlx5_core 0000:5e:00.0: poll_health:817:(pid 0): Fatal error 1 detected", 2),
        ("XFS (sdb1): Filesystem has been shut down due to log error (0x2).", 2),
        ("EXT4-fs (nvme0n1p1): Remounting filesystem read-only", 2),
        ("{1}[Hardware Error]: event severity: fatal", 2),
        ("Kernel panic - not syncing: x", 0),
        ("md/raid1:md0: Disk failure on sdb1, disabling device.", 0),
    ],
)
def test_a_prolog_fails_for_what_leaves_no_doubt(folder: Path, line: str, code: int) -> None:
    file = _config(folder)
    (judgement,) = judge_kernel([KernelLine(line)])
    assert isinstance(judgement, Faulty)
    mode = CONDITIONS[judgement.key.condition].mode
    words = ("--config", str(file), "--fail-on", "critical", "--nagios")

    async def scenario() -> "subprocess.CompletedProcess[str]":
        async with served(folder, no_look, replace(judgement.finding, mode=mode)):
            return await asyncio.to_thread(_check, folder, *words)

    done = asyncio.run(scenario())
    assert done.returncode == code
    assert judgement.key.condition in done.stdout


def test_a_log_that_was_moved_drains_nothing_unless_somebody_asked_for_that(folder: Path) -> None:
    file = _config(folder)
    (folder / "kernel.log").unlink()
    (folder / "kernel.log").mkdir()
    words = ("--config", str(file), "--only", "kernel", "--fail-on", "critical", "--nagios")
    passing = _check(folder, *words)
    assert passing.returncode == 0
    assert passing.stdout.startswith("EVERSTEP UNKNOWN")
    assert _check(folder, *words, "--strict").returncode == 3


def test_what_is_expected_and_not_there_is_critical_until_it_is_not_expected(folder: Path) -> None:
    wanted = folder / "inventory.toml"
    wanted.write_text(
        '[host]\ncpus = 100_000\n[[links]]\nkind = "infiniband"\ncount = 8\n', encoding="utf-8"
    )
    (folder / "sys/devices/system/cpu").mkdir(parents=True)
    (folder / "sys/devices/system/cpu/online").write_text("0-3\n", encoding="ascii")
    file = _config(folder, f'inventory = "{wanted}"')
    done = _check(folder, "--config", str(file), "--only", "inventory", "--json")
    found = {one["condition"]: one["severity"] for one in json.loads(done.stdout)["findings"]}
    assert found == {"LinkMissing": "fatal", "CpuMissing": "degraded"}
    assert done.returncode == 2


def test_an_inventory_is_written_once_and_met(folder: Path) -> None:
    driver = FakeDriver(folder, gpus=2)
    file, wanted = _config(folder), folder / "inventory.toml"
    words = ("inventory", "--config", str(file), "--output", str(wanted))
    written = _run(folder, *words, variables=driver.command[1:3])
    assert written.returncode == 0, written.stderr
    assert "count = 2" in wanted.read_text(encoding="utf-8")
    again = _run(folder, *words, variables=driver.command[1:3])
    assert again.returncode == 1
    assert "--force replaces it" in again.stderr
    file = _config(folder, f'inventory = "{wanted}"')
    met = _check(
        folder, "--config", str(file), "--only", "inventory", variables=driver.command[1:3]
    )
    driver.close()
    assert met.returncode == 0, met.stdout


def test_a_wrong_file_of_rules_keeps_the_agent_from_starting(folder: Path) -> None:
    rules = folder / "rules.d"
    rules.mkdir()
    (rules / "pdu.toml").write_text('[[rules]]\nname = "pdu"\n', encoding="utf-8")
    file = _config(folder, f'rules = "{rules}"')
    done = _run(folder, "--config", str(file))
    assert done.returncode == 78
    told = done.stderr.splitlines()
    assert told[0] == f"everstep-agent: {rules}/pdu.toml:1: rule pdu: condition: missing"
    assert len(told) > 3
    checked = _run(folder, "rules", "check", str(rules / "pdu.toml"))
    assert checked.returncode == 1
    assert [line.replace("agent rules:", "agent:") for line in checked.stderr.splitlines()] == told


def test_a_wrong_inventory_keeps_the_agent_from_starting(folder: Path) -> None:
    wanted = folder / "inventory.toml"
    wanted.write_text('[gpu]\ncount = 8\n[host]\ncpus = "all"\n', encoding="utf-8")
    file = _config(folder, f'inventory = "{wanted}"')
    done = _run(folder, "--config", str(file))
    assert done.returncode == 78
    assert done.stderr.splitlines() == [
        f"everstep-agent: {wanted}: gpu: unknown key; did you mean gpus?"
        " 'everstep-agent inventory' writes one",
        f"everstep-agent: {wanted}: host.cpus: expected a whole number, got 'all'",
    ]


def test_the_running_agent_is_asked_first_and_knows_what_one_look_cannot_see(folder: Path) -> None:
    finding = Finding(
        component="gpu/0000:3b:00.0",
        condition="XidFatal",
        severity=Severity.FATAL,
        message="Xid 79, GPU has fallen off the bus",
        mode=Mode.ENFORCE,
        injected=True,
    )
    file = _config(folder)

    async def scenario() -> "subprocess.CompletedProcess[str]":
        async with served(folder, no_look, finding):
            return await asyncio.to_thread(_check, folder, "--config", str(file), "--nagios")

    done = asyncio.run(scenario())
    assert done.returncode == 2
    assert done.stdout == (
        "EVERSTEP CRITICAL - XidFatal on gpu/0000:3b:00.0: Xid 79, GPU has fallen off the bus "
        "[injected] | fatal=1 degraded=0 unread=0 blind=0\n"
    )
