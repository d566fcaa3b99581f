"""Real processes die with the real torch; what they leave behind is read as what it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from everstep_common.failures.classification import Failure, classify
from fakes.ports import reserved_port

pytestmark = pytest.mark.real

_SCRIPTS = {
    "collective": """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(9):
    if step == 3 and dist.get_rank() == 1:
        os._exit(1)
    dist.all_reduce(torch.ones(1000))
""",
    "exception": """
import torch
try:
    torch.ones(2, 3) @ torch.ones(2, 3)
except RuntimeError as error:
    raise ValueError("bad batch 17") from error
""",
    "host_memory": "import torch; torch.ones(1 << 50)",
    "assertion": "import torch; assert torch.ones(1).isnan().all(), 'no number'",
    "nan": """
import torch
with torch.autograd.detect_anomaly():
    x = torch.zeros(2, requires_grad=True)
    (torch.sqrt(x) * 0).sum().backward()
""",
    "killed": """
import os, torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): os.kill(os.getpid(), 9)
for _ in torch.utils.data.DataLoader(Rows(), num_workers=1): pass
""",
    "crash": "import ctypes, torch; ctypes.string_at(0)",
    "import": "import torch.nothing_of_this_name",
}


def _process(folder: Path, script: str, **more: str) -> "subprocess.Popen[str]":
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", **more}
    line = [sys.executable, str(path)]
    return subprocess.Popen(line, env=environ, stderr=subprocess.PIPE, text=True)


def _classified(process: "subprocess.Popen[str]") -> Failure:
    _, said = process.communicate(timeout=120)
    code = process.returncode
    # As many lines as a launcher keeps.
    return classify(max(code, 0), max(-code, 0), said.splitlines()[-40:])


@pytest.mark.parametrize("kind", [kind for kind in _SCRIPTS if kind != "collective"])
def test_a_process_that_dies_of_torch_is_classified(tmp_path: Path, kind: str) -> None:
    told = _classified(_process(tmp_path, _SCRIPTS[kind]))
    assert told.kind == kind
    assert (kind == "exception") == (told.exception == "ValueError: bad batch 17")


def test_a_rank_whose_peer_is_gone_is_a_consequence(tmp_path: Path) -> None:
    with reserved_port() as port:
        more = {"MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        ranks = [
            _process(tmp_path, _SCRIPTS["collective"], RANK=str(rank), **more) for rank in range(2)
        ]
    told = [_classified(process) for process in ranks]
    assert [failure.kind for failure in told] == ["collective", "exit"]
    assert told[0].exception.startswith("RuntimeError: ")
    assert "gloo" in told[0].exception
