"""Fake vendor commands: scripts in a folder of their own that print samples, hang, or fail."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
SAMPLES = Path(__file__).resolve().parents[1] / "fixtures/accelerators"


class FakeTool:
    """One command; what it does may change while it is in use."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / name
        self.calls = folder / f"{name}.calls"

    def answers(self, samples: dict[str, str]) -> None:
        """Print a sample for arguments that begin like a key; the longest key decides."""
        cases = "".join(
            f"{shlex.quote(arguments)}*) cat {shlex.quote(str(SAMPLES / sample))};;\n"
            for arguments, sample in sorted(samples.items(), key=lambda item: -len(item[0]))
        )
        self.script(f'case "$*" in\n{cases}*) echo "unknown: $*"; exit 2;;\nesac')

    def script(self, body: str) -> None:
        """Do anything else."""
        text = f'#!/bin/sh\necho "$*" >> {shlex.quote(str(self.calls))}\n{body}\n'
        # Replaced as a whole: a script that runs is not to be written to.
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(self.file)

    def called(self) -> list[str]:
        """Return the arguments of every call."""
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []


def amdgpu(sysfs: Path, changed: Mapping[str, str] = _NOTHING, card: int = 0) -> Path:
    """Make a card as the amdgpu driver shows it, and return its device folder."""
    device = sysfs / f"devices/pci0000:00/0000:{card + 3:02x}:00.0"
    files = json.loads((SAMPLES / "amdgpu.json").read_text(encoding="utf-8"))
    for name, text in {**files, **changed}.items():
        file = device / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    link = sysfs / f"class/drm/card{card}/device"
    link.parent.mkdir(parents=True)
    link.symlink_to(device)
    return device
