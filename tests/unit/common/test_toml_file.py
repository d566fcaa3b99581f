"""TOML file: whatever a path leads to, it is read at once or refused in a sentence."""

import os
from pathlib import Path

import pytest

from everstep_common.toml_file import TomlError, read_toml


def test_a_file_is_its_text_and_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[a]\nb = 1\n", encoding="utf-8")
    assert read_toml(path).tables == {"a": {"b": 1}}
    assert read_toml(path).text == "[a]\nb = 1\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a = \n", "not valid TOML: Invalid value (at line 1, column 5)"),
        (b"a = 1\nb = '\xe1'\n", "not valid TOML: line 2 is not UTF-8"),
        (b"\xef\xbb\xbfa = 1", "not valid TOML: it begins with a byte order mark; save it"),
        (b"a = " + b"9" * 5000, "not valid TOML: Exceeds the limit"),
        (b"a = " + b"[" * 5000, "nested too deeply"),
        (b"#" * (1 << 20) + b"#", "more than 1 MiB"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "some.toml"
    path.write_bytes(content)
    with pytest.raises(TomlError) as caught:
        read_toml(path)
    assert str(caught.value).startswith(told)


def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    told = {
        tmp_path / "pipe": "cannot be read: it is a pipe",
        tmp_path / "loop": "cannot be read: Too many levels of symbolic links",
        tmp_path: "cannot be read: Is a directory",
        tmp_path / "none": "cannot be read: No such file or directory",
        Path("/dev/zero"): "more than 1 MiB",
        Path("a\0b"): "cannot be read: embedded null byte",
    }
    for path, sentence in told.items():
        with pytest.raises(TomlError, match=sentence):
            read_toml(path)
