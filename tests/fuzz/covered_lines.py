"""Covered lines of one format: its kept cases once more, in a process without instrumentation.

Started by ``python tests/fuzz``: coverage has to begin before the modules under test are imported.
"""

import json
import sys
import tempfile
from pathlib import Path

import coverage

# More of the corpus adds hardly a line, and takes as long as it took to find it.
_CASES_MAX = 3000


def main(name: str, folder: Path) -> None:
    """Print how many lines there are in the modules under test, and how many were covered."""
    measured = coverage.Coverage(data_file=None, source_pkgs=_PACKAGES, config_file=False)
    measured.start()
    from fuzz.formats import load_format
    from fuzz.session import Session

    format = load_format(name)
    with tempfile.TemporaryDirectory() as finds:
        session = Session(format, Path(finds))
        session.open()
        for path in sorted((folder / "corpus").iterdir())[:_CASES_MAX]:
            session.run(path.read_bytes())
        session.close()
    measured.stop()
    covered = total = 0
    for file in measured.get_data().measured_files():
        if _is_tested(file, format.tested):
            _, lines, _, missing, _ = measured.analysis2(file)
            covered, total = covered + len(lines) - len(missing), total + len(lines)
    print(json.dumps({"covered": covered, "lines": total}))


_PACKAGES = ["everstep_common", "everstep_agent", "everstep_controller", "everstep_proto"]


def _is_tested(file: str, tested: tuple[str, ...]) -> bool:
    """Return whether a file is one of the modules, or in one of the packages."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return any(name.endswith(f".{one}") or f".{one}." in name for one in tested)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
