"""Verifies a release from outside: ``python tools/verify_release.py FOLDER [--signers FILE]``.

Each file has the hash that SHA256SUMS tells, and no file is without. Packages hold what their lists
of parts (CycloneDX) name, in those versions, and the files of each library have the hashes of its
own RECORD. With ``--signers`` SHA256SUMS.sig is by one of them (a file of allowed signers, as
ssh-keygen has it). It needs dpkg-deb for packages, and ssh-keygen for signatures.
"""

import argparse
import base64
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

_SUMS, _SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
_NAMESPACE = "everstep-release"
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


def main() -> int:
    """Print what is wrong with a release; return 0 where nothing is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--signers", type=Path, help="ssh-keygen's file of allowed signers")
    options = parser.parse_args()
    problems = list(_problems(options.folder, options.signers))
    for one in problems:
        print(one)
    if not problems:
        print(f"{options.folder}: {len(_sums(options.folder))} files are what they claim to be")
    return 1 if problems else 0


def _problems(folder: Path, signers: Path | None) -> Iterator[str]:
    if not (folder / _SUMS).is_file():
        yield f"{folder}: there is no {_SUMS}; name the folder of a release"
        return
    if signers is not None:
        yield from _signature_problems(folder, signers)
    sums = _sums(folder)
    listed = {*sums, _SUMS, _SIGNATURE}
    unknown = sorted(file.name for file in folder.iterdir() if file.name not in listed)
    yield from (f"{name}: {_SUMS} does not know it" for name in unknown)
    yield from _file_problems(folder, sums)
    for number, line in enumerate((folder / _SUMS).read_text().splitlines(), start=1):
        if _LINE.fullmatch(line) is None:
            yield f"{_SUMS}: line {number} is no hash and name"


def _file_problems(folder: Path, sums: Mapping[str, str]) -> Iterator[str]:
    for name, wanted in sums.items():
        file = folder / name
        if "/" in name or not file.is_file():
            yield f"{name}: it is missing"
        elif hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
            yield f"{name}: its hash is not the one in {_SUMS}"
        elif file.suffix == ".deb":
            yield from _package_problems(file)


def _sums(folder: Path) -> Mapping[str, str]:
    lines = map(_LINE.fullmatch, (folder / _SUMS).read_text().splitlines())
    return {line[2]: line[1] for line in lines if line is not None}


def _signature_problems(folder: Path, signers: Path) -> Iterator[str]:
    if not (folder / _SIGNATURE).is_file():
        yield f"{_SIGNATURE}: it is missing, so nobody vouches for this release"
        return
    signature = folder / _SIGNATURE
    found = _run("ssh-keygen", "-Y", "find-principals", "-f", signers, "-s", signature)
    known = found.stdout.decode().split()
    signer = known[0] if known else "nobody"
    verify = ("ssh-keygen", "-Y", "verify", "-f", signers, "-n", _NAMESPACE, "-I", signer)
    done = _run(*verify, "-s", signature, given=(folder / _SUMS).read_bytes())
    if done.returncode:
        yield f"{_SIGNATURE}: it is of none of these signers, or of another {_SUMS}"


def _package_problems(deb: Path) -> Iterator[str]:
    bill = deb.with_name(f"{deb.name.removesuffix('.deb')}.cdx.json")
    if not bill.is_file():
        yield f"{deb.name}: its list of parts is missing"
        return
    told = json.loads(bill.read_text())
    parts = {_plain(one["name"]): one["version"] for one in told["components"]}
    files = _files(deb)
    held: dict[str, str] = {}
    for name, content in files.items():
        folder = PurePosixPath(name).parent
        if PurePosixPath(name).name == "RECORD" and folder.suffix == ".dist-info":
            library, _, version = folder.stem.rpartition("-")
            held[_plain(library)] = version
            yield from (f"{deb.name}: {one}" for one in _record_problems(files, folder, content))
    held.pop("everstep", None)
    for name in sorted(parts.keys() | held.keys()):
        if parts.get(name) != held.get(name):
            has, lists = held.get(name, "nothing"), parts.get(name, "nothing")
            yield f"{deb.name}: it holds {name} {has}, and its list of parts says {lists}"


def _record_problems(
    files: Mapping[str, bytes], folder: PurePosixPath, content: bytes
) -> Iterator[str]:
    """Yield files that are not what a library's own list says; some are left out on purpose."""
    for path, told, _ in csv.reader(io.StringIO(content.decode())):
        name = str(folder.parent / path)
        if told.startswith("sha256=") and name in files:
            digest = hashlib.sha256(files[name]).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != told.removeprefix(
                "sha256="
            ):
                yield f"{path} is not what its library was published with"


def _files(deb: Path) -> dict[str, bytes]:
    archive = io.BytesIO(_run("dpkg-deb", "--fsys-tarfile", deb, check=True).stdout)
    with tarfile.open(fileobj=archive) as files:
        return {
            one.name.removeprefix("./"): content.read()
            for one in files
            if one.isfile() and (content := files.extractfile(one)) is not None
        }


def _run(
    *command: str | Path, given: bytes = b"", check: bool = False
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command, input=given, capture_output=True, check=check)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    sys.exit(main())
