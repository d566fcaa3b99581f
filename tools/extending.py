"""Extension patches: docs/extending/*.patch applied to copies of the tree, and brought up to date.

Each patch adds one thing of its kind, as docs/extending.md walks through. ``rebase`` rewrites them
for the newest commit; ``open NAME`` makes a checkout in which one is applied, to change it there;
``save NAME FOLDER`` writes it from that checkout. Generated files are in no patch: they are written
anew wherever one is applied.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from house_counts import files_of_addition

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT / "docs" / "extending"
_STUBS = ("-m", "everstep_proto.regenerate")
_PAGES = (
    ("docs/generate_reference.py",),
    ("docs/generate_signals.py",),
    ("docs/generate_lifecycles.py",),
)
# Of a checkout, what belongs into no patch.
_LEFT_OUT = (
    ":(exclude,glob)**/generated/**",
    ":(exclude)docs/extending",
    ":(exclude)docs/configuration.md",
    ":(exclude)docs/signals.md",
)


class PatchError(Exception):
    """A patch does not fit the tree; what to type next is in the sentence."""


@dataclass(frozen=True)
class Patch:
    """One patch: a caption, the tests that fail without it, and the diff."""

    path: Path

    @property
    def name(self) -> str:
        """Return the kind of addition that it shows."""
        return self.path.stem

    @property
    def head(self) -> str:
        """Return what stands before the diff: git skips it."""
        return self.path.read_text().partition("diff --git ")[0]

    @property
    def tests(self) -> list[str]:
        """Return the files of the tests that fail without it."""
        return re.findall(r"^Test: (\S+)$", self.head, re.MULTILINE)

    @property
    def files(self) -> list[str]:
        """Return the hand-written files that it touches."""
        return files_of_addition(self.path.read_text())


def patches(folder: Path = PATCHES) -> list[Patch]:
    """Return all patches, in the order in which they are applied together."""
    return [Patch(path) for path in sorted(folder.glob("*.patch"))]


def copy_tree(folder: Path, root: Path = ROOT) -> None:
    """Copy every file of the working tree that git does not ignore."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in listed.split("\0"):
        source, target = root / name, folder / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def check_applies(patch: Patch, folder: Path) -> None:
    """Return if a patch fits a copy of the tree. Raises PatchError."""
    _git_apply(patch, folder, "--check")


def apply(patch: Patch, folder: Path) -> None:
    """Apply a patch to a copy of the tree. Raises PatchError, and changes nothing then."""
    _git_apply(patch, folder)


def _git_apply(patch: Patch, folder: Path, *options: str) -> None:
    # A copy is no repository, also where it lies in one.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", *options, str(patch.path)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PatchError(
            f"docs/extending/{patch.path.name} does not apply any more; regenerate it with: "
            f"python tools/extending.py rebase {patch.name}\n{done.stderr.strip()}"
        )


def write_stubs(folder: Path) -> None:
    """Write the stubs of a copy anew, where its protocol is another. Raises CalledProcessError."""
    protocols = sorted((ROOT / "proto").glob("*.proto"))
    if any((folder / "proto" / one.name).read_text() != one.read_text() for one in protocols):
        _generate(folder, _STUBS)


def write_generated(folder: Path) -> None:
    """Write the stubs and pages of a copy anew. Raises CalledProcessError."""
    for generator in (_STUBS, *_PAGES):
        _generate(folder, generator)


def _generate(folder: Path, generator: tuple[str, ...]) -> None:
    command, environment = [sys.executable, *generator], environment_of(folder)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment in which the packages of a copy are imported, not the installed."""
    settings = tomllib.loads((folder / "pyproject.toml").read_text())
    paths: list[str] = settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(folder / path) for path in paths)}


def run_tests(folder: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run test files of a copy; the answer has their output."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests],
        cwd=folder, env=environment_of(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip


def open_checkout(patch: Patch, folder: Path) -> list[str]:
    """Make a checkout of the newest commit with a patch in it; return the files in conflict.

    What the patch was made from must be among the repository's commits. Raises PatchError.
    """
    _git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(folder))
    try:
        _git(folder, "apply", "--3way", "--index", str(patch.path))
    except PatchError as error:
        conflicts = _git(folder, "diff", "--name-only", "--diff-filter=U").splitlines()
        if not conflicts:
            raise PatchError(f"docs/extending/{patch.path.name}: {error}") from error
        return conflicts
    return []


def save_checkout(patch: Patch, folder: Path) -> None:
    """Write a patch from what its checkout changes. Raises PatchError."""
    head = patch.head if patch.path.exists() else f"{patch.name}\n\nTest: \n---\n"
    _git(folder, "add", "--all")
    options = ("--cached", "--full-index", "HEAD", "--", ".", *_LEFT_OUT)
    patch.path.write_text(head + _git(folder, "diff", *options))


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PatchError(done.stderr.strip())
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 1 when a patch needs a person."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("rebase").add_argument("names", nargs="*", metavar="NAME")
    commands.add_parser("open").add_argument("name", metavar="NAME")
    saving = commands.add_parser("save")
    saving.add_argument("name", metavar="NAME")
    saving.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    if options.command == "rebase":
        wanted = options.names or [patch.name for patch in patches()]
        return max([_rebase(Patch(PATCHES / f"{name}.patch")) for name in wanted], default=0)
    patch = Patch(PATCHES / f"{options.name}.patch")
    if options.command == "save":
        save_checkout(patch, options.folder)
        print(f"docs/extending/{patch.path.name}: {len(patch.files)} hand-written files")
        return 0
    return _open(patch)


def _rebase(patch: Patch) -> int:
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, patch.name)
        try:
            conflicts = open_checkout(patch, checkout)
        except PatchError as error:
            print(error, file=sys.stderr)
            return 1
        if conflicts:
            print(
                f"docs/extending/{patch.path.name} conflicts in {', '.join(conflicts)}; "
                f"mend it in a checkout: python tools/extending.py open {patch.name}",
                file=sys.stderr,
            )
            return 1
        save_checkout(patch, checkout)
    print(f"docs/extending/{patch.path.name} fits the newest commit")
    return 0


def _open(patch: Patch) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"everstep-{patch.name}-")) / "checkout"
    conflicts = open_checkout(patch, folder) if patch.path.exists() else _empty(folder)
    for name in conflicts:
        print(f"conflict in {folder / name}", file=sys.stderr)
    print(f"change {folder}, then: python tools/extending.py save {patch.name} {folder}")
    return 1 if conflicts else 0


def _empty(folder: Path) -> list[str]:
    _git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(folder))
    return []


if __name__ == "__main__":
    sys.exit(main())
