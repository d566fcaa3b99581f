"""Packages: builds a release into dist/, the same bytes each time.

The wheel, the source archive, a package of each target, their parts as CycloneDX, and SHA256SUMS.
``python packages images`` builds the images of agent and controller into dist/images/.
``python packages lock`` resolves what they hold anew. It needs dpkg-deb and a package index, images
apt as well.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from debian import build
from debian_root import RootError, write_root_locks
from images import build_images, native_architecture
from locks import ROOT, write_locks
from materials import write_bill, write_sums
from targets import ARCHITECTURES, PACKAGES, TARGETS

# All files are dated by it: the newest commit's time, where there is one.
_EPOCH = "SOURCE_DATE_EPOCH"
_NO_EPOCH = "1795000000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is asked for; return 0, or 1 where something could not be built."""
    options = _options(arguments)
    os.environ.setdefault(_EPOCH, _time_of_source())
    try:
        _WHAT[options.what](options)
    except RootError as error:
        print(error, file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"{error.filename} is not there; on Debian: apt install dpkg", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(error.cmd[:6])} …", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python packages", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=_WHAT, default="build")
    parser.add_argument("--out", type=Path, help="folder (default: dist; of images, dist/images)")
    for name, known in (("target", TARGETS), ("arch", ARCHITECTURES), ("package", PACKAGES)):
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=list(known))
    parser.add_argument("--no-deb", action="store_true", help="the wheel and source archive alone")
    return parser.parse_args(arguments)


def _time_of_source() -> str:
    told = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or _NO_EPOCH


def _lock(_: argparse.Namespace) -> None:
    write_locks()
    with tempfile.TemporaryDirectory(prefix="everstep-packages-") as work:
        write_root_locks(Path(work))


def _build_images(options: argparse.Namespace) -> None:
    out = options.out or ROOT / "dist" / "images"
    _empty(out)
    with tempfile.TemporaryDirectory(prefix="everstep-images-") as work:
        folder = Path(work)
        wheel = _wheel(folder, "--target", "wheel")
        # Those of another processor are laid out as well as this one's.
        chosen = options.arch if len(options.arch) == 1 else [native_architecture()]
        for architecture in chosen:
            build_images(out, folder, wheel, architecture)
    write_sums(out)
    print(f"{out}: docs/images.md tells how registries and nodes get them")


def _empty(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _wheel(out: Path, *words: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", *words, "--directory", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob("*.whl")
    return wheel


def _build(options: argparse.Namespace) -> None:
    out = options.out or ROOT / "dist"
    _empty(out)
    wheel = _wheel(out)
    wanted = [
        (PACKAGES[package], TARGETS[target], architecture)
        for package in options.package
        for target in options.target
        for architecture in options.arch
    ]
    with tempfile.TemporaryDirectory(prefix="everstep-packages-") as work:
        for package, target, architecture in [] if options.no_deb else wanted:
            deb = build(out, Path(work), package, target, architecture, wheel)
            write_bill(out, package, target, architecture, deb)
            print(f"{deb.name}: {deb.stat().st_size / 1e6:.1f} MB", flush=True)
    write_sums(out)
    print(f"{out}: {len(list(out.iterdir()))} files; 'sha256sum --check SHA256SUMS' compares them")
    print(f"To install: pip install '{wheel}[all]', or apt install ./everstep-*.deb")


_WHAT = {"build": _build, "images": _build_images, "lock": _lock}

if __name__ == "__main__":
    sys.exit(main())
