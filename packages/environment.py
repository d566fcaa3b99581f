"""Environment: the folder of a private Python environment, laid out without running its Python.

Wheels are unpacked for another Python and another processor than those of this machine, so one
machine builds the packages of all.
"""

import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

from locks import lock_of
from targets import ARCHITECTURES, Package, Target

_PROGRAM = """#!{python} -I
import sys
from {module} import {function}
sys.exit({function}())
"""


def lay_out(stage: Path, package: Package, target: Target, architecture: str, wheel: Path) -> Path:
    """Lay out the environment of a package below a stage; return its folder there.

    Raises CalledProcessError with what pip said: a wheel that is not there, or has another hash.
    """
    folder = stage / package.folder.lstrip("/")
    library = folder / "lib" / f"python{target.python_name}" / "site-packages"
    library.mkdir(parents=True)
    _install(
        library,
        target,
        architecture,
        ["--require-hashes", "-r", str(lock_of(package, target, architecture))],
    )
    _install(library, target, architecture, ["--no-deps", *_by_name(wheel)])
    for name in package.left_out:
        shutil.rmtree(library / name)
    # Data of the wheel: units, documentation and boards lie below its environment.
    shutil.move(library / "share", folder / "share")
    for unused in (library / "bin", library / "include"):
        shutil.rmtree(unused, ignore_errors=True)
    _write_interpreter(folder, target)
    _write_programs(folder, library, package)
    _drop_tests(library)
    return folder


def _by_name(wheel: Path) -> list[str]:
    """Ask for a wheel by its name: of a path, pip would write down where it lay."""
    version = wheel.name.split("-")[1]
    return ["--no-index", "--find-links", str(wheel.parent), f"everstep=={version}"]


def _install(library: Path, target: Target, architecture: str, what: list[str]) -> None:
    machine = ARCHITECTURES[architecture]
    newest = int(target.glibc.partition(".")[2])
    platforms = [
        word
        for minor in range(newest, 16, -1)
        for word in ("--platform", f"manylinux_2_{minor}_{machine}")
    ]
    version = "".join(map(str, target.python))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"),
            *("--no-compile", "--no-warn-conflicts", "--only-binary", ":all:"),
            *("--implementation", "cp", "--python-version", target.python_name),
            *("--abi", f"cp{version}", "--abi", "abi3", "--abi", "none"),
            *platforms,
            *("--platform", f"manylinux2014_{machine}", "--platform", "any"),
            *("--target", str(library), "--upgrade"),
            *what,
        ],
        check=True,
    )


def _write_interpreter(folder: Path, target: Target) -> None:
    """Write what makes a folder an environment: the distribution's Python runs in it."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "python3", f"python{target.python_name}"):
        (programs / name).symlink_to(f"/usr/bin/python{target.python_name}")
    (folder / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {target.python_name}\n"
    )


def _write_programs(folder: Path, library: Path, package: Package) -> None:
    ours = next(library.glob("everstep-*.dist-info"))
    points = PathDistribution(ours).entry_points.select(group="console_scripts")
    python = f"{package.folder}/bin/python"
    for name in package.programs:
        point = points[name]
        program = folder / "bin" / name
        text = _PROGRAM.format(python=python, module=point.module, function=point.attr)
        program.write_text(text)
        program.chmod(0o755)


def _drop_tests(library: Path) -> None:
    """Remove the tests that libraries bring, and what a compiler of C would need."""
    for name in ("tests", "include"):
        for found in sorted(library.glob(f"*/**/{name}")):
            if found.is_dir():
                shutil.rmtree(found)
