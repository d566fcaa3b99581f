"""The manifests of examples/kubernetes, read by kubectl as the types of Kubernetes' API."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.command_line.options import parse_options
from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import document

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="not installed: kubectl"),
]

_FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
# Both need no server. The first takes any keys; the second decodes into Kubernetes' own types, and
# so drops what these do not have.
_AS_WRITTEN = ("annotate", "checked=yes")
_AS_TYPED = ("set", "serviceaccount", "default")

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


def _documents(path: Path) -> list[str]:
    return path.read_text().split("\n---\n")


def _kubectl(command: tuple[str, ...], document: str) -> Json:
    """Return the object of a document as kubectl understands it."""
    line = ["kubectl", *command, "--local", "-o", "json", "-f", "-"]
    done = subprocess.run(
        line, input=document, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def _lost(written: Json, typed: Json, path: str = "") -> Iterator[str]:
    """Yield what is written and is nothing that Kubernetes knows there."""
    if isinstance(written, dict):
        for key, value in written.items():
            inside = typed.get(key) if isinstance(typed, dict) else None
            yield from _lost(value, inside, f"{path}.{key}")
    elif isinstance(written, list):
        items = typed if isinstance(typed, list) else []
        if len(items) != len(written):
            yield path
        for at, (one, other) in enumerate(zip(written, items, strict=False)):
            yield from _lost(one, other, f"{path}[{at}]")
    elif typed is None and written not in ("", None, 0, False):
        yield path


def _of_kind(path: Path, *kinds: str) -> str:
    """Return the document that is of one of these kinds."""
    written = {document: _kubectl(_AS_WRITTEN, document) for document in _documents(path)}
    (found,) = [document for document, one in written.items() if _at(one, "kind") in kinds]
    return found


def _at(found: Json, *keys: str | int) -> Json:
    for key in keys:
        if isinstance(key, str):
            assert isinstance(found, dict)
            found = found[key]
        else:
            assert isinstance(found, list)
            found = found[key]
    return found


def _unknown(path: Path) -> set[str]:
    """Return what a workload says that means nothing to Kubernetes."""
    document = _of_kind(path, "DaemonSet", "Job")
    lost = _lost(_kubectl(_AS_WRITTEN, document), _kubectl(_AS_TYPED, document))
    return set(lost) - {".metadata.annotations.checked"}


@pytest.mark.parametrize("name", ["agent.yaml", "job.yaml"])
def test_every_key_of_a_workload_is_one_that_kubernetes_has(name: str) -> None:
    assert _unknown(_FOLDER / name) == set()


def test_a_key_that_kubernetes_does_not_have_is_found(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text((_FOLDER / "job.yaml").read_text().replace("hostNetwork:", "hostNetwrok:"))
    assert _unknown(path) == {".spec.template.spec.hostNetwrok"}


def test_the_launcher_of_the_job_takes_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    pod = _at(_workload("job.yaml", "Job"), "spec", "template", "spec")
    container = _at(pod, "containers", 0)
    line = [str(word) for key in ("command", "args") for word in _words(_at(container, key))]
    assert line[:2] == ["everstep", "run"]
    inside = [word.replace("/shared", str(tmp_path)) for word in line[2:]]
    options = parse_options(inside, {"CUDA_VISIBLE_DEVICES": ""})
    assert (options.job, options.nodes_min, options.nodes_max) == ("llm", 14, 16)
    assert options.keep.storage is not None


def test_the_agent_of_the_daemon_set_takes_its_configuration() -> None:
    tables = tomllib.loads(str(_at(_workload("agent.yaml", "ConfigMap"), "data", "agent.toml")))
    keys = {key for key, value in tables.items() if not isinstance(value, dict)}
    keys |= {f"{t}.{k}" for t, v in tables.items() if isinstance(v, dict) for k in v}
    assert keys <= {doc.key for doc in document(AgentConfig)}


def _workload(name: str, kind: str) -> Json:
    return _kubectl(_AS_WRITTEN, _of_kind(_FOLDER / name, kind))


def _words(found: Json) -> list[Json]:
    assert isinstance(found, list)
    return found
