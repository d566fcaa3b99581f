"""A release is what it claims to be: each file has its hash, and none is without."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

_TOOL = Path(__file__).parents[3] / "tools" / "verify_release.py"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    lines = []
    for name in ("everstep-1-py3-none-any.whl", "everstep-1.tar.gz"):
        (folder / name).write_bytes(name.encode())
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def _verified(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-I", str(_TOOL), str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def test_a_release_that_is_whole_is_told_as_such(release: Path) -> None:
    assert _verified(release) == (0, f"{release}: 2 files are what they claim to be\n")


def test_what_is_changed_missing_or_added_is_named(release: Path) -> None:
    (release / "everstep-1.tar.gz").write_text("changed")
    (release / "everstep-1-py3-none-any.whl").unlink()
    (release / "added.whl").write_text("added")
    code, said = _verified(release)
    assert code == 1
    assert said.splitlines() == [
        "added.whl: SHA256SUMS does not know it",
        "everstep-1-py3-none-any.whl: it is missing",
        "everstep-1.tar.gz: its hash is not the one in SHA256SUMS",
    ]


def test_a_package_without_its_list_of_parts_is_told(release: Path) -> None:
    (release / "everstep-agent_1_amd64.deb").write_bytes(b"deb")
    with (release / "SHA256SUMS").open("a") as sums:
        sums.write(f"{hashlib.sha256(b'deb').hexdigest()}  everstep-agent_1_amd64.deb\n")
    assert _verified(release) == (
        1,
        "everstep-agent_1_amd64.deb: its list of parts is missing\n",
    )


def test_names_that_lead_out_of_the_folder_and_lines_that_are_none_are_problems(
    release: Path,
) -> None:
    with (release / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  ../outside\nrubbish\n")
    code, said = _verified(release)
    assert code == 1
    assert said.splitlines() == [
        "../outside: it is missing",
        "SHA256SUMS: line 4 is no hash and name",
    ]


def test_a_folder_that_is_no_release_and_a_signature_that_is_missing_are_told(
    release: Path, tmp_path: Path
) -> None:
    code, said = _verified(tmp_path)
    assert (code, "there is no SHA256SUMS; name the folder of a release" in said) == (1, True)
    (tmp_path / "signers").write_text("")
    code, said = _verified(release, "--signers", str(tmp_path / "signers"))
    assert code == 1
    assert said.startswith("SHA256SUMS.sig: it is missing")
