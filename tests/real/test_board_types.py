"""The boards are what Grafana's own types say a board is, by the compiler of TypeScript.

A server of Grafana is in no package of Debian's; these types come with each of its releases.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from boards.files import files

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed (apt: npm)"),
]
_VERSIONS = ("@grafana/schema@13.2.3", "typescript@7.0.2")
_OPTIONS = (
    *("--noEmit", "--skipLibCheck", "--strict", "--moduleResolution", "bundler"),
    *("--module", "esnext", "--target", "es2022"),
)
# Words that are members of enums there, which a text is not for the compiler.
_ENUMS = {'"mode": "absolute"': '"mode": ThresholdsMode.Absolute',
          '"type": "value"': '"type": MappingType.ValueToText'}  # fmt: skip
_HEAD = (
    "import { MappingType, ThresholdsMode, type Dashboard } from '@grafana/schema';\n"
    "const board: Dashboard = "
)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grafana")
    line = ["npm", "install", "--ignore-scripts", "--silent", "--prefix", str(folder), *_VERSIONS]
    subprocess.run(line, check=True, timeout=300)
    return folder


def _complaints(folder: Path, text: str) -> str:
    for word, member in _ENUMS.items():
        text = text.replace(word, member)
    (folder / "board.ts").write_text(f"{_HEAD}{text};\nexport default board;\n")
    line = [str(folder / "node_modules" / ".bin" / "tsc"), *_OPTIONS, "board.ts"]
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(("path", "text"), [pytest.param(*one, id=one[0].stem) for one in files()])
def test_a_board_is_of_grafanas_type(compiler: Path, path: Path, text: str) -> None:
    assert _complaints(compiler, text) == "", path.name


def test_what_is_none_is_refused(compiler: Path) -> None:
    wrong = re.sub(r'"schemaVersion": \d+', '"schemaVersion": "x"', files()[0][1])
    assert "TS2322" in _complaints(compiler, wrong)
