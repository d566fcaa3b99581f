"""Materials of a release: its parts as CycloneDX, and the hash of each file."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from locks import lock_of
from targets import Package, Target

SUMS = "SHA256SUMS"


def write_bill(out: Path, package: Package, target: Target, architecture: str, deb: Path) -> Path:
    """Write which libraries a package holds, and return the file. Raises CalledProcessError."""
    file = out / f"{deb.name.removesuffix('.deb')}.cdx.json"
    lock = lock_of(package, target, architecture)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", str(lock)),
            *("--output-reproducible", "--of", "JSON", "--sv", "1.6"),
        ],
        check=True,
        capture_output=True,
    )
    bill = json.loads(done.stdout)
    bill["metadata"]["component"] = {
        "type": "application",
        "bom-ref": package.name,
        "name": package.name,
        "version": deb.name.split("_")[1],
        "hashes": [{"alg": "SHA-256", "content": _sum_of(deb)}],
    }
    file.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    return file


def write_sums(out: Path) -> Path:
    """Write the hash of each file of a release, as sha256sum --check reads them."""
    file = out / SUMS
    lines = [f"{_sum_of(one)}  {one.name}\n" for one in sorted(out.iterdir()) if one != file]
    file.write_text("".join(lines))
    return file


def _sum_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
