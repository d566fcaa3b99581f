"""Locks: the exact wheels of each package on each target, with their hashes."""

import subprocess
import sys
from pathlib import Path

from targets import ARCHITECTURES, PACKAGES, TARGETS, Package, Target

ROOT = Path(__file__).parents[1]
_FOLDER = Path(__file__).parent / "locks"


def lock_of(package: Package, target: Target, architecture: str) -> Path:
    """Return the file of a lock: one requirement each, with its hashes."""
    return _FOLDER / f"{package.name}_{target.name}_{architecture}.txt"


def write_locks() -> None:
    """Resolve all requirements anew. Raises CalledProcessError with what uv said."""
    _FOLDER.mkdir(exist_ok=True)
    for package in PACKAGES.values():
        for target in TARGETS.values():
            for architecture, machine in ARCHITECTURES.items():
                file = lock_of(package, target, architecture)
                _resolve(package, target, machine, file)
                print(f"{file.relative_to(ROOT)}: {len(locked(file))} packages", flush=True)


def _resolve(package: Package, target: Target, machine: str, file: Path) -> None:
    extras = [word for extra in package.extras for word in ("--extra", extra)]
    glibc = target.glibc.replace(".", "_")
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--upgrade"),
        *("--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate"),
        *("--only-binary", ":all:", "--constraint", "constraints.txt"),
        *("--python-version", target.python_name),
        *("--python-platform", f"{machine}-manylinux_{glibc}"),
        *extras,
        *("pyproject.toml", "--output-file", str(file)),
    ]
    subprocess.run(command, cwd=ROOT, check=True)


def locked(file: Path) -> dict[str, str]:
    """Return the versions of a lock by name."""
    lines = (line.partition(" ")[0] for line in file.read_text().splitlines())
    pairs = (line.partition("==") for line in lines if "==" in line)
    return {name: version for name, _, version in pairs}
