"""Packages: builds a release into dist/, the same bytes each time.

The wheel, the source archive, a package of each target, their parts as CycloneDX, and SHA256SUMS.
``python packages lock`` resolves what they hold anew. It needs dpkg-deb and a package index.
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
        if options.what == "lock":
            write_locks()
        else:
            _build(options)
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
    parser.add_argument("what", nargs="?", choices=("build", "lock"), default="build")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder (default: dist)")
    for name, known in (("target", TARGETS), ("arch", ARCHITECTURES), ("package", PACKAGES)):
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=list(known))
    parser.add_argument("--no-deb", action="store_true", help="the wheel and source archive alone")
    return parser.parse_args(arguments)


def _time_of_source() -> str:
    told = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or _NO_EPOCH


def _build(options: argparse.Namespace) -> None:
    out = options.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob("*.whl")
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


if __name__ == "__main__":
    sys.exit(main())
