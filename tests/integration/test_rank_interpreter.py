"""The start of a rank's interpreter: whatever Python it is, a script finds it as without us."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.launch.inspection.rank_pages import RankPages
from everstep.rank import interpreter
from everstep_common.clock import boot_ns

_FOLDER = Path(interpreter.__file__).parent
_SCRIPT = """
import json, sys
names = [type(one).__name__ for one in sys.meta_path if type(one).__name__ != "type"]
modules = [name for name in sys.modules if name.startswith("everstep")]
json.dump({"path": sys.path[1:], "finders": names, "modules": modules}, sys.stdout)
"""


def other_pythons() -> list[Path]:
    """Return interpreters of other versions that are installed here."""
    found = [*Path("/usr/bin").glob("python[23].*"), *Path("/usr/bin").glob("python3")]
    found += Path.home().glob(".pyenv/versions/*/bin/python")
    return sorted(
        path
        for path in found
        if path.name.removeprefix("python").replace(".", "", 1).isdigit() or path.name == "python"
    )


def run(python: str, script: Path, *path: Path, ours: bool = True) -> dict[str, list[str]]:
    """Return what a script finds; ``path`` is its user's PYTHONPATH."""
    entries = [str(_FOLDER)] * ours + [str(entry) for entry in path]
    environ = {"PATH": os.environ["PATH"]}
    environ |= {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}
    environ |= {"EVERSTEP_RANK_FILES": "/nowhere"} if ours else {}
    done = subprocess.run([python, str(script)], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(_SCRIPT)
    return path


def test_a_script_without_torch_has_one_finder_more_and_nothing_else(script: Path) -> None:
    without = run(sys.executable, script, script.parent, ours=False)
    found = run(sys.executable, script, script.parent)
    assert found["path"] == without["path"]
    assert found["finders"] == ["TorchFinder", *without["finders"]]
    assert found["modules"] == ["everstep_torch_finder"]


_SOCKETS = """
import json, multiprocessing, os, socket, sys, threading, time

def child(queue):
    queue.put(threads())

def threads():
    return sorted(os.listdir("/proc/self/task"))

if __name__ == "__main__":
    time.sleep(0.2)
    found = {"path": sys.path[1:], "threads": len(threads()), "known": threading.active_count()}
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        one = context.Process(target=child, args=(queue,))
        one.start()
        found[method] = len(queue.get())
        one.join()
    json.dump(found, sys.stdout)
"""


def test_a_rank_that_has_sockets_has_a_thread_more_and_its_children_have_none(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SOCKETS)
    pages = RankPages([0])
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_FOLDER)}
    environ |= {"EVERSTEP_RANK_FILES": "/nowhere", **pages.environment(0)}
    line = [sys.executable, str(script)]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert str(_FOLDER) not in found.pop("path")
    assert found == {"threads": 2, "known": 1, "fork": 1, "spawn": 1}
    facts = pages.read(0, boot_ns())
    assert facts.watched_at_ns > 0
    assert facts.watch_thread not in (0, facts.watch_process)
    pages.close()


def test_the_site_s_own_start_runs_too(tmp_path: Path, script: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('the site begins')\n")
    script.write_text(_SCRIPT.replace("json.dump", "import sitecustomize\njson.dump"))
    environ = {"PATH": os.environ["PATH"], "EVERSTEP_RANK_FILES": "/nowhere"}
    environ["PYTHONPATH"] = f"{_FOLDER}{os.pathsep}{tmp_path / 'own'}"
    line = [sys.executable, str(script)]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the site begins\n")
    assert done.stdout.count("the site begins") == 1


def test_an_error_of_the_site_s_own_start_is_its_own(tmp_path: Path, script: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import no_such_module\n")
    line = [sys.executable, str(script)]
    environ = {"PATH": os.environ["PATH"], "EVERSTEP_RANK_FILES": "/nowhere"}
    told = []
    for path in (str(tmp_path), f"{_FOLDER}{os.pathsep}{tmp_path}"):
        environ["PYTHONPATH"] = path
        done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
        told.append((done.returncode, "No module named 'no_such_module'" in done.stderr))
    assert told[0] == told[1] == (0, True)


@pytest.mark.parametrize("python", other_pythons(), ids=str)
def test_other_versions_of_python_start_as_before(python: Path, script: Path) -> None:
    without = run(str(python), script, ours=False)
    found = run(str(python), script)
    assert found["path"] == without["path"]


def test_a_torch_without_a_worker_server_is_loaded_and_that_is_told(tmp_path: Path) -> None:
    # As much of torch as its import sees, in the module whose loader is wrapped.
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.4.1'\n")
    (package / "__init__.py").write_text("from torch.distributed.distributed_c10d import *\n")
    (package / "distributed_c10d.py").write_text(
        "def init_process_group(*args, **named):\n    return args, named\n"
    )
    (tmp_path / "torch" / "_C").mkdir()
    (tmp_path / "torch" / "_C" / "__init__.py").write_text("")
    (tmp_path / "torch" / "_C" / "_distributed_c10d.py").write_text("")
    script = tmp_path / "train.py"
    script.write_text(
        "import inspect, os, sys, torch.distributed as dist\n"
        "assert dist.init_process_group(1, b=2) == ((1,), {'b': 2})\n"
        "assert 'def init_process_group' in inspect.getsource(dist.distributed_c10d)\n"
        "assert dist.init_process_group.__name__ == 'init_process_group'\n"
        "assert not [one for one in sys.meta_path if type(one).__name__ == 'TorchFinder']\n"
        "print(os.environ.get('TORCH_NCCL_TRACE_BUFFER_SIZE'))\n"
        "print(os.listdir(os.environ['EVERSTEP_RANK_FILES']))\n"
        "print(open(f\"{os.environ['EVERSTEP_RANK_FILES']}/{os.getpid()}.json\").read())\n"
    )
    files = tmp_path / "files"
    files.mkdir()
    environ = {"PATH": os.environ["PATH"], "EVERSTEP_RANK_FILES": str(files)}
    environ |= {"PYTHONPATH": str(_FOLDER), "TORCH_FR_BUFFER_SIZE": "2000"}
    line = [sys.executable, str(script)]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    older_name, _, told = done.stdout.splitlines()
    # A torch of that age knows the older name only.
    assert older_name == "2000"
    assert json.loads(told) == {
        "stacks": False,
        "thread": 0,
        "why": "this torch has no worker server",
    }
