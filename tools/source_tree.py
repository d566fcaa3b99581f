"""Source tree: the hand-written files of a checkout, their lines, syntax and imports."""

import ast
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

# A top folder is a component; the import packages inside it.
COMPONENTS = ("agent", "common", "controller", "proto", "trainer")
GENERATED = "generated"


@dataclass(frozen=True)
class SourceFile:
    """One Python file: where it stands, what it is imported as, and its text."""

    path: str
    text: str

    @property
    def component(self) -> str:
        """Return the top folder that it stands in."""
        return self.path.partition("/")[0]

    @property
    def module(self) -> str:
        """Return the dotted name that it is imported by."""
        dotted = self.path.partition("/")[2].removesuffix(".py").replace("/", ".")
        return dotted.removesuffix(".__init__")

    @property
    def folder(self) -> str:
        """Return the dotted name of the folder that it stands in."""
        return self.path.partition("/")[2].rpartition("/")[0].replace("/", ".")

    @property
    def is_package(self) -> bool:
        """Return whether it is the file of a package."""
        return self.path.endswith("__init__.py")

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return len(self.text.splitlines())

    @cached_property
    def syntax(self) -> ast.Module:
        """Return its syntax tree."""
        return ast.parse(self.text, self.path)

    @property
    def caption(self) -> str:
        """Return the first line of its docstring; empty where there is none."""
        return (ast.get_docstring(self.syntax) or "").partition("\n")[0]

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Return the classes that are defined at its top."""
        return [node for node in self.syntax.body if isinstance(node, ast.ClassDef)]


@dataclass(frozen=True)
class SourceTree:
    """All hand-written files of the components below a folder."""

    root: Path
    files: tuple[SourceFile, ...]

    @cached_property
    def modules(self) -> dict[str, SourceFile]:
        """Return the files by the name that they are imported by."""
        return {file.module: file for file in self.files}

    @cached_property
    def imports(self) -> frozenset[tuple[str, str]]:
        """Return who imports whom, as pairs of modules; lazy imports and those for types too."""
        return frozenset(
            (file.module, target)
            for file in self.files
            for target in self._imported(file)
            if target != file.module
        )

    def importers(self, module: str) -> set[str]:
        """Return the modules that import a module."""
        return {source for source, target in self.imports if target == module}

    def _imported(self, file: SourceFile) -> Iterator[str]:
        for node in ast.walk(file.syntax):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names if name.name in self.modules)
            elif isinstance(node, ast.ImportFrom):
                origin = absolute_origin(file, node)
                for name in node.names:
                    inner = f"{origin}.{name.name}"
                    target = inner if inner in self.modules else origin
                    if target in self.modules:
                        yield target


def absolute_origin(file: SourceFile, node: ast.ImportFrom) -> str:
    """Return the dotted name of the module that a ``from … import`` names."""
    if not node.level:
        return node.module or ""
    parts = file.folder.split(".")
    above = ".".join(parts[: len(parts) - node.level + 1])
    return f"{above}.{node.module}" if node.module else above


def read_tree(root: Path) -> SourceTree:
    """Read every hand-written Python file of the components of a tree."""
    paths = sorted(
        path
        for component in COMPONENTS
        for path in (root / component).rglob("*.py")
        if GENERATED not in path.parts and "__pycache__" not in path.parts
    )
    return SourceTree(
        root,
        tuple(SourceFile(path.relative_to(root).as_posix(), path.read_text()) for path in paths),
    )


@contextmanager
def unpacked(root: Path, revision: str) -> Iterator[Path]:
    """Give a temporary folder with the files of a revision; an unknown one raises SystemExit."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=root, capture_output=True, check=False
    )
    if archive.returncode:
        raise SystemExit(archive.stderr.decode().strip())
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
            # Python before 3.11.4 knows no filter; the archive is one that git has made.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder)
        yield Path(folder)
