"""Packages of this distribution, built, and installed on a booted machine as a site does."""

import gzip
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,  # they are built twice, which takes minutes
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
    pytest.mark.skipif(
        "bookworm" not in Path("/etc/os-release").read_text(), reason="this is not Debian 12"
    ),
]
_NAMES = ("everstep-agent", "everstep-controller")
_INSTALLED_MAX = 40 * 1024 * 1024


def _build(out: Path, *words: str) -> None:
    command = [sys.executable, "packages", "--out", str(out), "--target", "debian12"]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "1795000000"}
    subprocess.run([*command, "--arch", "amd64", *words], cwd=REPOSITORY, env=environ, check=True)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release")
    _build(out)
    return out


def _deb(release: Path, name: str) -> Path:
    (found,) = release.glob(f"{name}_*.deb")
    return found


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, release: Path) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("box"), "everstep-packages") as started:
        for name in _NAMES:
            (started.root / "root" / f"{name}.deb").write_bytes(_deb(release, name).read_bytes())
        _dpkg(started, "--install", *(f"/root/{name}.deb" for name in _NAMES))
        yield started


def _dpkg(box: Box, *words: str) -> str:
    return box.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *words)


def test_a_release_verifies_itself_and_a_changed_byte_is_found(release: Path) -> None:
    verify = [sys.executable, "tools/verify_release.py", str(release)]
    done = subprocess.run(verify, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    deb = _deb(release, "everstep-agent")
    content = bytearray(deb.read_bytes())
    content[len(content) // 2] ^= 1
    kept = deb.read_bytes()
    deb.write_bytes(content)
    try:
        done = subprocess.run(verify, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"{deb.name}: its hash is not the one in SHA256SUMS" in done.stdout
    finally:
        deb.write_bytes(kept)


def test_the_same_source_gives_the_same_bytes(release: Path, tmp_path: Path) -> None:
    _build(tmp_path / "again", "--package", "everstep-agent")
    for one in (tmp_path / "again").iterdir():
        if one.name != "SHA256SUMS":
            assert one.read_bytes() == (release / one.name).read_bytes(), one.name


def test_nothing_lies_below_lib_and_programs_are_owned_by_root(release: Path) -> None:
    for name in _NAMES:
        command = ["dpkg-deb", "--fsys-tarfile", str(_deb(release, name))]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE) as archive,
            tarfile.open(fileobj=archive.stdout, mode="r|") as files,
        ):
            members = list(files)
        assert not [one.name for one in members if one.name.startswith("./lib")]
        assert {(one.uid, one.gid) for one in members} == {(0, 0)}


def test_each_command_has_its_page_and_shells_complete_its_words(
    release: Path, tmp_path: Path
) -> None:
    for name in _NAMES:
        subprocess.run(["dpkg-deb", "-x", str(_deb(release, name)), str(tmp_path)], check=True)
    pages = {one.name: one for one in (tmp_path / "usr/share/man").rglob("*.gz")}
    assert {"everstep-agent-join.8.gz", "everstep-controller-init.8.gz"} <= pages.keys()
    assert {"everstep.1.gz", "everstep-nodes.1.gz", "everstep-run.1.gz"} <= pages.keys()
    for page in pages.values():
        text = gzip.decompress(page.read_bytes())
        command = ["groff", "-man", "-ww", "-Tutf8", "-Kutf8"]
        drawn = subprocess.run(command, input=text, capture_output=True, check=True)
        assert (drawn.stderr, b"NAME" in drawn.stdout) == (b"", True), page
    completion = tmp_path / "usr/share/bash-completion/completions/everstep"
    subprocess.run(["bash", "-n", str(completion)], check=True)


def test_what_is_installed_starts_under_its_units_and_shows_the_node(box: Box) -> None:
    for name in _NAMES:
        example = name.removeprefix("everstep-")
        box.run("cp", f"/usr/share/doc/{name}/{example}.toml", "/etc/everstep/")
        box.run("systemctl", "enable", "--now", name)
    # Suspect where this machine has units of Slurm, which run in no box.
    judged = re.compile(r"1 node: 1 (healthy|suspect)")
    wait_until(lambda: judged.search(box.run("everstep", "nodes", check=False)), 120.0, "no node")
    assert "everstep 0.1.0" in box.run("everstep", "--version")
    assert "everstep" in box.run("id", "-nG", "everstep-agent").split()


def test_an_agent_takes_no_more_room_than_it_is_said_to(box: Box) -> None:
    kilobytes = int(
        box.run("du", "--summarize", "--apparent-size", "/opt/everstep/agent").split()[0]
    )
    assert kilobytes * 1024 <= _INSTALLED_MAX


def test_an_upgrade_keeps_the_configuration_and_restarts_what_ran(box: Box) -> None:
    box.run("sh", "-c", "echo '# kept' >>/etc/everstep/agent.toml")
    before = box.show("everstep-agent", "MainPID")
    _dpkg(box, "--install", "/root/everstep-agent.deb")
    wait_until(lambda: box.show("everstep-agent", "ActiveState") == "active")
    assert box.show("everstep-agent", "MainPID") != before
    assert "# kept" in box.run("cat", "/etc/everstep/agent.toml")


def test_a_removed_package_leaves_its_data_and_a_purged_one_does_not(box: Box) -> None:
    _dpkg(box, "--remove", "everstep-agent")
    assert box.run("ls", "/etc/everstep/agent.toml", "-d", "/var/lib/everstep-agent")
    assert box.run("sh", "-c", "ls -d /opt/everstep/agent 2>/dev/null || true") == ""
    _dpkg(box, "--purge", "everstep-agent")
    left = box.run(
        "sh", "-c", "ls -d /etc/everstep/agent.toml /var/lib/everstep-agent", check=False
    )
    assert left == ""
    # The other package is whole.
    assert "0.1.0" in box.run("everstep-controller", "--version")
    _dpkg(box, "--purge", "everstep-controller")
    assert box.run("sh", "-c", "ls -d /etc/everstep /opt/everstep 2>/dev/null || true") == ""
