"""Manuals: what a program says of itself as pages of man, and completion of its words in shells."""

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import gmtime, strftime

# Daemons and what people type: section 8 is for administrators.
_SECTIONS = {"everstep": 1}
_SHELLS = {
    "bash": "usr/share/bash-completion/completions/everstep",
    "zsh": "usr/share/zsh/vendor-completions/_everstep",
    "fish": "usr/share/fish/vendor_completions.d/everstep.fish",
}
# "everstep-agent {join,check,…} …", "everstep-controller init …": a daemon's commands in its usage.
_USED = r"^(?:usage:)? +%s \[?\{?([a-z][a-z,-]+)"
# A line of `everstep help`: a command, and what it does.
_LISTED = re.compile(r"^  ([a-z][a-z-]*)  +\S", re.MULTILINE)
_WIDTH = "78"


def install_manuals(stage: Path, programs: Iterable[str]) -> None:
    """Write the pages of programs, and their completion, below a folder.

    The programs are those of this Python's environment. Raises CalledProcessError.
    """
    for program in programs:
        section = _SECTIONS.get(program, 8)
        folder = stage / f"usr/share/man/man{section}"
        folder.mkdir(parents=True, exist_ok=True)
        for words in _commands(program):
            page = _page(words, section, _said(*words, "--help"))
            packed = gzip.compress(page.encode(), mtime=0)
            (folder / f"{'-'.join(words)}.{section}.gz").write_bytes(packed)
        if program == "everstep":
            for shell, place in _SHELLS.items():
                file = stage / place
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(_said(program, "completion", shell))


def _commands(program: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of a program and of each of its commands."""
    yield (program,)
    if program == "everstep":
        names = _LISTED.findall(_said(program, "help"))
    else:
        found = re.findall(_USED % program, _said(program, "--help"), re.MULTILINE)
        names = [name for one in found for name in one.split(",")]
    for name in sorted(set(names)):
        yield (program, name)


def _said(*words: str) -> str:
    program = Path(sys.executable).parent / words[0]
    environ = {"PATH": os.environ["PATH"], "COLUMNS": _WIDTH, "HOME": "/nonexistent"}
    done = subprocess.run(
        [program, *words[1:]], env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout


def _page(words: tuple[str, ...], section: int, help_text: str) -> str:
    """Return a page of man: the help as it is, for its lines are laid out already."""
    name = "-".join(words)
    day = strftime("%Y-%m-%d", gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    others = "everstep(1), everstep-agent(8), everstep-controller(8)"
    return "\n".join(
        (
            f'.TH "{name.upper()}" "{section}" "{day}" "Everstep" "Everstep"',
            ".SH NAME",
            f"{_escaped(name)} \\- {_escaped(_summary(help_text))}",
            ".SH DESCRIPTION",
            ".nf",
            *(_line(line) for line in help_text.splitlines()),
            ".fi",
            ".SH SEE ALSO",
            _escaped(others),
            "",
        )
    )


def _summary(help_text: str) -> str:
    """Return the first sentence that is not about how it is typed."""
    paragraphs = re.split(r"\n\s*\n", help_text)
    told = [one for one in paragraphs if not one.lower().startswith("usage:")]
    text = " ".join(told[0].split())
    return re.split(r"(?<=[^.])\. |: |; ", text)[0].rstrip(".")


def _line(text: str) -> str:
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
