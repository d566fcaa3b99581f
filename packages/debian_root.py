"""Debian root: the files of the few packages that an image's Python needs, and no shell.

Packages are named with version and hash in a lock. apt fetches them with its own signatures into a
folder of the build; nothing is installed, and no script of a package runs.
"""

import getpass
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from locks import ROOT
from targets import ARCHITECTURES

IMAGE_TARGET = "debian12"
_FOLDER = Path(__file__).parent / "locks"
# The interpreter, what its modules and the wheels are linked to, names of hosts, time zones and the
# authorities of the web. Nothing that runs a command line.
_NAMES = (
    *("base-files", "netbase", "tzdata", "ca-certificates"),
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libssl3", "libffi8", "libexpat1"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1", "libcrypt1"),
    *("libncursesw6", "libtinfo6"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
_SOURCES = """\
deb {signed} http://deb.debian.org/debian bookworm main
deb {signed} http://deb.debian.org/debian-security bookworm-security main
"""
_SIGNED = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
# As on each Debian since 12; its packages still have files below the old names.
_MERGED = ("bin", "sbin", "lib", "lib64")
_LEFT_OUT = (
    *("usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian"),
    *("usr/share/bash-completion", "usr/share/pixmaps", "usr/share/applications", "etc/init.d"),
    *("etc/update-motd.d", "etc/cron.daily", "usr/sbin", "usr/share/gcc", "usr/share/gdb"),
)
_USERS = """\
root:x:0:0:root:/root:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
everstep-controller:x:65532:65532:Everstep controller:/var/lib/everstep-controller:/usr/sbin/nologin
"""
_GROUPS = "root:x:0:\nnogroup:x:65534:\neverstep-controller:x:65532:\n"


class RootError(Exception):
    """A root cannot be made; one sentence that says what to do."""


def root_lock(architecture: str) -> Path:
    """Return the file of a lock: name, version and SHA-256 of each Debian package."""
    return _FOLDER / f"root_{IMAGE_TARGET}_{architecture}.txt"


def locked_root(architecture: str) -> list[tuple[str, str, str]]:
    """Return name, version and hash of each package of a root."""
    lines = root_lock(architecture).read_text().splitlines()
    return [(name, version, digest) for name, version, digest in map(str.split, lines)]


def write_root_locks(work: Path) -> None:
    """Resolve the newest versions. Raises CalledProcessError with what apt said."""
    for architecture in ARCHITECTURES:
        folder = work / architecture
        fetched = _fetch(folder, architecture, _NAMES)
        rows = sorted((*_named(deb), _sum_of(deb)) for deb in fetched)
        file = root_lock(architecture)
        file.write_text("".join(f"{name} {version} {digest}\n" for name, version, digest in rows))
        print(f"{file.relative_to(ROOT)}: {len(rows)} Debian packages", flush=True)


def make_root(root: Path, work: Path, architecture: str) -> None:
    """Make the root of images in a folder. Raises RootError."""
    for deb in _locked_debs(work, architecture):
        _unpack(deb, root)
        _describe(deb, root)
    _prune(root)
    _write_settings(root)


# -------------------------------------------------------------------------------------------------


def _locked_debs(work: Path, architecture: str) -> Iterator[Path]:
    wanted = locked_root(architecture)
    try:
        fetched = _fetch(work, architecture, [f"{name}={version}" for name, version, _ in wanted])
    except subprocess.CalledProcessError as error:
        raise RootError(
            f"Debian's mirror has not all of {root_lock(architecture).name} any more, or is not "
            "reached: 'python packages lock' names what is newest there"
        ) from error
    by_hash = {_sum_of(deb): deb for deb in fetched}
    for name, version, digest in wanted:
        if digest not in by_hash:
            raise RootError(
                f"{name} {version}: its hash is not the one in {root_lock(architecture).name}"
            )
        yield by_hash[digest]


def _fetch(work: Path, architecture: str, names: Sequence[str]) -> list[Path]:
    """Have apt fetch packages by lists of its own in a folder. Raises CalledProcessError."""
    for folder in ("lists/partial", "archives/partial", "debs"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / "sources.list").write_text(_SOURCES.format(signed=_SIGNED))
    (work / "status").touch()
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::Etc::SourceList": str(work / "sources.list"),
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": str(work / "lists"),
        "Dir::State::Status": str(work / "status"),
        "Dir::Cache": str(work),
        "APT::Sandbox::User": getpass.getuser(),
        "Acquire::Languages": "none",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    for command in (["update"], ["download", *names]):
        subprocess.run(
            ["apt-get", "--quiet=2", *words, *command],
            cwd=work / "debs",
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return sorted((work / "debs").glob("*.deb"))


def _named(deb: Path) -> tuple[str, str]:
    name, version = (_field(deb, field) for field in ("Package", "Version"))
    return name, version


def _field(deb: Path, name: str) -> str:
    command = ["dpkg-deb", "--field", str(deb), name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _sum_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _unpack(deb: Path, root: Path) -> None:
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
    ) as archive:
        # Without the option, a folder "lib" of a package would take the place of the link.
        subprocess.run(
            ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)],
            stdin=archive.stdout,
            check=True,
        )


def _describe(deb: Path, root: Path) -> None:
    """Write down what is in the image where scanners of images look for it."""
    folder = root / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["dpkg-deb", "--field", str(deb)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (folder / _field(deb, "Package")).write_text(told)


def _prune(root: Path) -> None:
    for name in _LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "usr/sbin").mkdir()
    for file in (root / "usr/share/doc").rglob("*"):
        if not file.is_dir() and file.name != "copyright":
            file.unlink()
    for folder in sorted((root / "usr/share/doc").rglob("*"), reverse=True):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    # Programs of libc6 and others: nothing in an image calls them.
    for program in (root / "usr/bin").iterdir():
        if not program.name.startswith("python3"):
            program.unlink()


def _write_settings(root: Path) -> None:
    """Write what the scripts of the packages would have written."""
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(file.read_bytes().strip() + b"\n" for file in authorities))
    shutil.rmtree(root / "usr/share/ca-certificates")
    files: Mapping[str, str] = {
        "passwd": _USERS,
        "group": _GROUPS,
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "hostname": "localhost\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    }
    for name, text in files.items():
        (root / "etc" / name).write_text(text)
    for name in ("tmp", "run", "root", "proc", "sys", "dev", "etc/everstep"):
        (root / name).mkdir(exist_ok=True)
    for name in ("everstep-agent", "everstep-controller"):
        (root / "var/lib" / name).mkdir(parents=True, exist_ok=True)
    if os.path.lexists(root / "etc/localtime"):
        (root / "etc/localtime").unlink()
