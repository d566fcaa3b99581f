"""The Slurm driver with programs in the place of Slurm's: everything that they may do wrong."""

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from everstep_common.credential_file import CredentialFile
from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.drivers import DriversConfig, configured_drivers
from everstep_controller.drivers.port import DriverError, IsolationDriver
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from fakes.waits import wait_until

_XID = WantedIsolation("n1", ("automation",), "automation: GPU 3 fell off", "XidFatal")
_ALLOWED = 'echo "slurm_update error: Invalid node name specified" >&2; exit 1'
# What sinfo is asked to separate fields with stands behind the first of them.
_SINFO = """\
for word; do case $word in NodeList*) rest=${word#NodeList:0}; sep=${rest%%,*} ;; esac; done
node() { printf "%s$sep" "$1" "$2" gpu* - "(null)" "(null)" "$3"; echo; }
"""


@pytest.fixture
def site(tmp_path: Path) -> "Site":
    return Site(tmp_path)


class Site:
    """A folder of programs that stand for Slurm's; each appends what it was asked to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        # Holds that the core knows.
        self.remembered: dict[str, Hold] = {}
        self.asked = folder / "asked"
        self.program("sinfo", _SINFO + 'node n1 idle none; node n2 idle+drain "ann: fan"')
        self.program("scontrol", _ALLOWED)

    def program(self, name: str, script: str) -> None:
        """Put a program in place."""
        path, draft = self.folder / name, self.folder / f"{name}.part"
        draft.write_text(f'#!/bin/sh\necho "{name} $SLURM_JWT $*" >> {self.asked}\n{script}\n')
        draft.chmod(0o755)
        draft.rename(path)

    def driver(
        self, call_timeout_s: float = 30.0, jwt_file: CredentialFile | None = None
    ) -> IsolationDriver:
        """Return the driver, as a controller makes it."""
        slurm = SlurmDriverConfig(enabled=True, bin_folder=self.folder, jwt_file=jwt_file)
        config = DriversConfig(call_timeout_s=call_timeout_s, slurm=slurm)
        return configured_drivers(config, lambda _: self.remembered)["slurm"]


def failure(driver: IsolationDriver) -> str:
    with pytest.raises(DriverError) as error:
        asyncio.run(driver.read())
    return str(error.value)


def test_it_reads_what_others_withhold(site: Site) -> None:
    view = asyncio.run(site.driver().read())
    assert {name: hold.reason for name, hold in view.holds.items()} == {"n2": "ann: fan"}
    assert {name: one.state for name, one in view.nodes.items()} == {
        "n1": "IDLE",
        "n2": "IDLE+DRAIN",
    }


def test_a_program_that_is_missing_is_named_with_what_to_install(site: Site) -> None:
    (site.folder / "scontrol").unlink()
    said = failure(site.driver())
    assert f"{site.folder}/scontrol is not there; install Slurm's client programs" in said
    assert "drivers.slurm.bin_folder" in said


@pytest.mark.parametrize("refusal", ["Invalid user id", "Access/permission denied"])
def test_a_lack_of_rights_is_told_with_the_command_that_grants_them(
    site: Site, refusal: str
) -> None:
    site.program("scontrol", f'echo "slurm_update error: {refusal}" >&2; exit 1')
    said = failure(site.driver())
    assert refusal in said
    assert "sacctmgr modify user" in said
    assert "adminlevel=Administrator" in said
    assert "drivers.slurm.jwt_file" in said


@pytest.mark.parametrize("printed", ["<html>502 Bad Gateway</html>", "n1", "node n1 | head -c 9"])
def test_rubbish_is_one_sentence(site: Site, printed: str) -> None:
    site.program("sinfo", f"{_SINFO}{printed if 'node' in printed else f'echo {printed!r}'}")
    assert "sinfo's answer is cut short or is not one" in failure(site.driver())


def test_half_an_answer_of_a_program_that_fails_is_none(site: Site) -> None:
    site.program("sinfo", _SINFO + "node n1 idle none; echo 'sinfo: error: oops' >&2; exit 1")
    assert "sinfo failed: sinfo: error: oops" in failure(site.driver())


def test_a_program_that_hangs_is_ended_with_its_children(site: Site) -> None:
    pids = site.folder / "pids"
    site.program("sinfo", f"sleep 3600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    said = failure(site.driver(call_timeout_s=4.0))
    assert said == (
        "no answer of sinfo within the call's 2 s; type 'scontrol ping' where the controller runs"
    )
    for pid in map(int, pids.read_text().split()):
        wait_until(partial(_is_gone, pid), 20.0)


def test_a_slurmctld_that_is_away_for_a_moment_is_no_failure(site: Site) -> None:
    once = site.folder / "once"
    away = 'echo "slurm_load_node: Unable to contact slurm controller (connect failure)" >&2'
    site.program(
        "sinfo", f"[ -e {once} ] || {{ touch {once}; {away}; exit 1; }}\n{_SINFO}node n1 idle x"
    )
    assert set(asyncio.run(site.driver().read()).nodes) == {"n1"}


def test_a_slurmctld_that_stays_away_is_told_with_what_to_type(site: Site) -> None:
    away = 'echo "slurm_load_node: Unable to contact slurm controller" >&2; exit 1'
    site.program("sinfo", away)
    said = failure(site.driver(call_timeout_s=4.0))
    assert said.startswith("slurmctld does not answer: slurm_load_node: Unable to contact")
    assert "type 'scontrol ping'" in said


def test_the_token_is_read_at_each_call(site: Site) -> None:
    file = site.folder / "token"
    file.write_text("first\n")
    file.chmod(0o600)
    driver = site.driver(jwt_file=CredentialFile(file))
    asyncio.run(driver.read())
    file.write_text("second\n")
    asyncio.run(driver.read())
    tokens = [line.split()[1] for line in site.asked.read_text().splitlines()]
    assert tokens == ["first", "first", "second"]
    file.unlink()
    said = failure(driver)
    said, _, what_to_type = said.partition("; ")
    assert said == f"drivers.slurm.jwt_file: {file} cannot be read: No such file or directory"
    assert what_to_type.startswith("'install -m 600 ")


def test_a_token_that_has_ended_is_told_with_how_to_make_another(site: Site) -> None:
    ended = "slurm_load_partitions: Protocol authentication error"
    site.program("sinfo", f"echo '{ended}' >&2; exit 1")
    said = failure(site.driver())
    assert f"slurmctld does not know the controller: {ended}; write a new token" in said


def test_an_exit_code_says_nothing_of_what_is_so(site: Site) -> None:
    async def scenario() -> None:
        driver = site.driver()
        site.program("scontrol", "exit 0")
        applied = await driver.apply([_XID])
        assert not applied.now
        assert "it is IDLE at Slurm" in applied.failures["n1"]
        site.program("scontrol", "echo 'slurm_update error: Zero Bytes' >&2; exit 1")
        assert "Zero Bytes" in (await driver.apply([_XID])).failures["n1"]

    asyncio.run(scenario())


def test_a_node_that_slurm_does_not_have_is_none_of_its(site: Site) -> None:
    site.program("scontrol", "echo 'Node n9 not found'; exit 1")
    wanted = [WantedIsolation(name, ("operator",), "x") for name in ("n9", "ALL", "n[1-2]", "a b")]
    applied = asyncio.run(site.driver().apply(wanted))
    assert set(applied.unmanaged) == {"n9", "ALL", "n[1-2]", "a b"}
    assert "ALL" not in site.asked.read_text()


def test_a_held_node_that_sinfo_does_not_list_is_held_still(site: Site) -> None:
    site.remembered = {name: Hold("ann: cables", ours=False) for name in ("n2", "n8", "n9", "ALL")}
    line = "NodeName=n9 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Reason=ann: cables [ann@1]"
    case = f'case "$*" in *show*) echo "{line}"; echo "Node n8 not found"; exit 1;; esac'
    site.program("scontrol", f"{case}\n{_ALLOWED}")
    view = asyncio.run(site.driver().read())
    assert {name: hold.reason for name, hold in view.holds.items()} == {
        "n2": "ann: fan",
        "n9": "ann: cables",
    }
    assert "show nodes n8,n9\n" in site.asked.read_text()


def test_an_answer_without_any_node_frees_none(site: Site) -> None:
    site.program("sinfo", "exit 0")
    said = "sinfo lists no node at all; type 'sinfo' where the controller runs"
    assert failure(site.driver()) == said


def test_a_node_is_none_of_slurms_only_where_scontrol_says_so(site: Site) -> None:
    away = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
    site.program("scontrol", f"echo '{away}' >&2; exit 1")
    with pytest.raises(DriverError, match="slurmctld does not answer"):
        asyncio.run(site.driver().apply([WantedIsolation("n9", ("operator",), "x")]))


def test_it_asks_for_nothing_that_is_so_or_is_withheld_by_others(site: Site) -> None:
    wanted = [WantedIsolation("n1"), WantedIsolation("n2"), WantedIsolation("n2", ("operator",))]
    applied = asyncio.run(site.driver().apply(wanted))
    assert "scontrol" not in site.asked.read_text()
    assert applied.now["n1"] is None


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # What nobody waits for stays as a zombie.
    return ") Z " in Path(f"/proc/{pid}/stat").read_text()
