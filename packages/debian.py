"""Debian packages: the tree of a package, and dpkg-deb over it; the same bytes each time."""

import os
import shutil
import subprocess
from pathlib import Path
from string import Template

from environment import lay_out
from manuals import install_manuals
from targets import Package, Target

HERE = Path(__file__).parent
_SYSTEM = Path("usr/lib/systemd/system")
# Where units of a clone or of pip find the programs.
_UNPACKAGED = "/opt/everstep/bin/"
_CONTROL = """Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: The Everstep maintainers <everstep@localhost>
Installed-Size: {kilobytes}
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= {glibc}), systemd, openssl
Section: admin
Priority: optional
Description: {summary}
{text}
"""


def build(
    out: Path, work: Path, package: Package, target: Target, architecture: str, wheel: Path
) -> Path:
    """Build a package into a folder; return its file. Raises CalledProcessError."""
    version = f"{wheel.name.split('-')[1]}~{target.suffix}"
    name = f"{package.name}_{version}_{architecture}"
    stage = work / name
    folder = lay_out(stage, package, target, architecture, wheel)
    _install_system_files(stage, folder, package)
    _write_control(stage, package, target, architecture, version)
    _make_modes_plain(stage)
    file = out / f"{name}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "-z4", "--build", str(stage), str(file)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(stage)
    return file


def _install_system_files(stage: Path, folder: Path, package: Package) -> None:
    systemd = folder / "share" / "everstep" / "systemd"
    # Below /usr/lib: a package with files in /lib breaks images that are made by unpacking it.
    units = stage / _SYSTEM
    units.mkdir(parents=True)
    for name in package.units:
        text = (systemd / name).read_text().replace(_UNPACKAGED, f"{package.folder}/bin/")
        text = text.replace("file:/opt/everstep/share/", f"file:{package.folder}/share/")
        (units / name).write_text(text)
        if (drop_ins := systemd / f"{name}.d").is_dir():
            shutil.copytree(drop_ins, stage / "usr/share/doc" / package.name / f"{name}.d")
    for kind in ("sysusers.d", "tmpfiles.d"):
        placed = stage / "usr/lib" / kind / f"{package.name}.conf"
        placed.parent.mkdir(parents=True)
        shutil.copyfile(systemd / kind / "everstep.conf", placed)
    examples = stage / "usr/share/doc" / package.name
    examples.mkdir(parents=True, exist_ok=True)
    for name in package.examples:
        shutil.copyfile(systemd / name, examples / name)
    shutil.copyfile(HERE.parent / "LICENSE", examples / "copyright")
    programs = stage / "usr/bin"
    programs.mkdir(parents=True)
    for name in package.programs:
        (programs / name).symlink_to(f"{package.folder}/bin/{name}")
    install_manuals(stage, package.programs)


def _write_control(
    stage: Path, package: Package, target: Target, architecture: str, version: str
) -> None:
    control = stage / "DEBIAN"
    control.mkdir()
    major, minor = target.python
    (control / "control").write_text(
        _CONTROL.format(
            name=package.name,
            version=version,
            architecture=architecture,
            kilobytes=_size(stage) // 1024,
            python=target.python_name,
            next_python=f"{major}.{minor + 1}",
            glibc=target.glibc,
            summary=package.summary,
            text="\n".join(_folded(package.text)),
        )
    )
    values = {
        "package": package.name,
        "folder": package.folder,
        "units": " ".join(package.units),
        "example": package.examples[0],
    }
    for name in ("postinst", "prerm", "postrm"):
        script = control / name
        script.write_text(Template((HERE / "debian" / name).read_text()).substitute(values))
        script.chmod(0o755)


def _folded(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) > 76:
            lines.append(line)
            line = ""
        line += f" {word}"
    return [*lines, line]


def _size(stage: Path) -> int:
    return sum(one.lstat().st_size for one in stage.rglob("*") if not one.is_dir())


def _make_modes_plain(stage: Path) -> None:
    """Give all files the modes that they have after an installation, whatever the umask here."""
    for one in (stage, *stage.rglob("*")):
        if one.is_symlink():
            continue
        executable = one.is_dir() or (os.access(one, os.X_OK) and one.stat().st_mode & 0o111)
        one.chmod(0o755 if executable else 0o644)
