"""Where core dumps are looked for, by the patterns of core(5)."""

from pathlib import Path

import pytest

from everstep.launch.workers import core_file


def kernel(folder: Path, pattern: str, uses_pid: str = "0") -> Path:
    """Return a folder with the kernel's settings."""
    (folder / "core_pattern").write_text(f"{pattern}\n")
    (folder / "core_uses_pid").write_text(f"{uses_pid}\n")
    return folder


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "name"),
    [
        ("core", "1", "core.77"),
        ("core", "0", "core"),
        ("core.%e.%p.%t", "1", "core.python.77.1700000000"),
        ("100%%-%p", "0", "100%-77"),
        ("{folder}/dumps/%E-%p", "0", "dumps/!usr!bin!python-77"),
    ],
)
def test_a_dump_is_found_by_the_kernel_s_pattern(
    tmp_path: Path, pattern: str, uses_pid: str, name: str
) -> None:
    settings = kernel(tmp_path, pattern.format(folder=tmp_path), uses_pid)
    assert core_file(77, tmp_path, settings) == ""
    (tmp_path / "dumps").mkdir()
    (tmp_path / name).write_bytes(b"ELF")
    assert core_file(77, tmp_path, settings) == str(tmp_path / name)


def test_a_dump_that_a_program_takes_is_shown_by_its_command(tmp_path: Path) -> None:
    systemd = kernel(tmp_path, "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h")
    assert core_file(77, tmp_path, systemd) == "coredumpctl info 77"
    assert core_file(77, tmp_path, kernel(tmp_path, "|/usr/share/apport/apport -p%p")) == ""


def test_without_the_kernel_s_word_nothing_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "core.77").write_bytes(b"ELF")
    assert core_file(77, tmp_path, tmp_path / "none") == ""
