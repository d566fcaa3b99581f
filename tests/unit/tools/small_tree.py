"""A tree of a few source files, written for one test."""

from pathlib import Path

from source_tree import SourceTree, read_tree


def small_tree(root: Path, files: dict[str, str]) -> SourceTree:
    """Write files below a folder, and read them as a source tree."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return read_tree(root)
