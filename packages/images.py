"""Images: agent and controller as OCI archives, laid out here; the same bytes each time.

An image is two layers, the Debian root, which both have, and the environment that the Debian
package has too. No container program is needed to build one, and no root.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from debian_root import IMAGE_TARGET, RootError, locked_root, make_root
from environment import lay_out
from locks import lock_of, locked
from targets import ARCHITECTURES, PACKAGES, TARGETS, Package

_CONTROLLER_USER = 65532
# Folders that a user other than root writes.
_OWNERS = {"var/lib/everstep-controller": _CONTROLLER_USER}
_MODES = {"tmp": 0o1777, "root": 0o700, "var/lib/everstep-controller": 0o750}
_COMMON = {
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: its packed bytes, and the hash of what is in them."""

    packed: bytes
    content_sha256: str


@dataclass(frozen=True, slots=True)
class Blob:
    """A part of an image that others name by its hash."""

    kind: str
    content: bytes

    @property
    def digest(self) -> str:
        """Return its name."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    @property
    def description(self) -> Json:
        """Return how others name it."""
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.content)}


def build_images(out: Path, work: Path, wheel: Path, architecture: str) -> None:
    """Build both images. Raises RootError, CalledProcessError."""
    version = wheel.name.split("-")[1]
    if sys.version_info[:2] != TARGETS[IMAGE_TARGET].python:
        raise RootError(
            f"the Python of images is {TARGETS[IMAGE_TARGET].python_name}, and this one is "
            f"{sys.version_info[0]}.{sys.version_info[1]}: it could not compile for it; "
            "run this with that one"
        )
    root = work / "root"
    make_root(root, work / "apt", architecture)
    _compile(root, root)
    base = _layer(root)
    shutil.rmtree(root)
    for package in PACKAGES.values():
        stage = work / package.name
        lay_out(stage, package, TARGETS[IMAGE_TARGET], architecture, wheel)
        _compile(stage, stage / package.folder.lstrip("/"))
        file = out / f"{package.name}_{version}_{architecture}.oci.tar"
        digest = _write(file, package, version, architecture, [base, _layer(stage)])
        shutil.rmtree(stage)
        _write_bill(file, package, version, architecture)
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, {digest}", flush=True)


# --- layers --------------------------------------------------------------------------------------


def _compile(root: Path, below: Path) -> None:
    """Compile all modules: a container may not write, and would compile at each start.

    Compiled files hold the hash of nothing: what is in an image does not change.
    """
    subprocess.run(
        [
            *(sys.executable, "-m", "compileall", "-q", "-f", "--invalidation-mode"),
            *("unchecked-hash", "-s", str(root), "-p", "/", str(below)),
        ],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _layer(root: Path) -> Layer:
    """Return a folder as a layer: files in order, of root, with one time."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            _add(tar, path, str(path.relative_to(root)))
    content = archive.getvalue()
    packed = gzip.compress(content, 6, mtime=0)
    return Layer(packed, hashlib.sha256(content).hexdigest())


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    entry = tar.gettarinfo(str(path), name)
    # A hard link would depend on which of its names is found first.
    if entry.islnk():
        entry.type, entry.linkname = tarfile.REGTYPE, ""
    entry.mtime, entry.uname, entry.gname = _time(), "", ""
    entry.uid = entry.gid = _OWNERS.get(name, 0)
    if not entry.issym():
        executable = entry.isdir() or entry.mode & 0o111
        entry.mode = _MODES.get(name, 0o755 if executable else 0o644)
    if entry.isreg():
        entry.size = path.stat().st_size
        with path.open("rb") as content:
            tar.addfile(entry, content)
    elif entry.isdir() or entry.issym():
        tar.addfile(entry)


def _time() -> int:
    return int(os.environ["SOURCE_DATE_EPOCH"])


# --- the image -----------------------------------------------------------------------------------


def _write(
    file: Path, package: Package, version: str, architecture: str, layers: list[Layer]
) -> str:
    """Write an archive in the layout of OCI; return the digest of its manifest."""
    blobs = [Blob(_LAYER, layer.packed) for layer in layers]
    config = Blob(_CONFIG, _json(_configuration(package, version, architecture, layers)))
    manifest = Blob(
        _MANIFEST,
        _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": config.description,
                "layers": [blob.description for blob in blobs],
            }
        ),
    )
    named = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"localhost/{package.name}:{version}",
    }
    platform = {"os": "linux", "architecture": architecture}
    listed = {**manifest.description, "annotations": named, "platform": platform}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [listed]}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        **{_place(blob): blob.content for blob in (*blobs, config, manifest)},
    }
    _write_archive(file, files)
    return manifest.digest


def _place(blob: Blob) -> str:
    return f"blobs/{blob.digest.replace(':', '/')}"


def _configuration(package: Package, version: str, architecture: str, layers: list[Layer]) -> Json:
    created = datetime.fromtimestamp(_time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    main = f"{package.folder}/bin/{package.name}"
    environment = {**_COMMON, "PATH": f"{package.folder}/bin", "GRPC_VERBOSITY": "ERROR"}
    settings: Json = {
        "Entrypoint": [main],
        "Env": [f"{key}={value}" for key, value in sorted(environment.items())],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": package.name,
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.description": package.summary,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }
    # The agent opens files as the users of jobs and reads the kernel's log: it starts as root,
    # with the capabilities that its pod names (docs/kubernetes.md).
    if package.name == "everstep-controller":
        settings["User"] = f"{_CONTROLLER_USER}:{_CONTROLLER_USER}"
    return {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": settings,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{layer.content_sha256}" for layer in layers],
        },
        "history": [
            {"created": created, "created_by": f"packages: {what}"}
            for what in ("Debian packages", package.name)
        ],
    }


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _write_archive(file: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), _time(), 0o644
            tar.addfile(entry, io.BytesIO(files[name]))


# --- its parts -----------------------------------------------------------------------------------


def _write_bill(file: Path, package: Package, version: str, architecture: str) -> None:
    """Write what an image holds, Debian packages and libraries, as CycloneDX."""
    lock = lock_of(package, TARGETS[IMAGE_TARGET], architecture)
    parts = [
        _part(name, release, f"pkg:deb/debian/{name}@{release}?arch={architecture}&distro=bookworm")
        for name, release, _ in locked_root(architecture)
    ]
    parts += [
        _part(name, release, f"pkg:pypi/{name}@{release}") for name, release in locked(lock).items()
    ]
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": package.name,
                "name": package.name,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": parts,
    }
    target = file.with_name(f"{file.name.removesuffix('.oci.tar')}.image.cdx.json")
    target.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")


def _part(name: str, version: str, url: str) -> Json:
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def native_architecture() -> str:
    """Return the architecture of this machine, as Debian names it."""
    machine = os.uname().machine
    return next((name for name, one in ARCHITECTURES.items() if one == machine), "amd64")
