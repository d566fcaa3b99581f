"""Manifests of kubernetes/, rendered by kubectl and read by it as types of Kubernetes' API."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from real.kubernetes.rendering import FOLDER, rendered

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="not installed: kubectl"),
]

# Both need no server. The first takes any keys; the second decodes into Kubernetes' own types, and
# so drops what these do not have.
_AS_WRITTEN = ("annotate", "checked=yes")
_AS_TYPED = ("set", "serviceaccount", "default")
_TYPED = ("DaemonSet", "StatefulSet", "Job")

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


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


def _unknown(text: str) -> set[str]:
    """Return what the workloads of a file say that means nothing to Kubernetes."""
    lost: set[str] = set()
    for one in yaml.safe_load_all(text):
        if one["kind"] in _TYPED:
            document = yaml.safe_dump(one)
            lost |= set(_lost(_kubectl(_AS_WRITTEN, document), _kubectl(_AS_TYPED, document)))
    return lost - {".metadata.annotations.checked"}


@pytest.mark.parametrize("name", ["base", "example", "cdi"])
def test_every_key_of_a_workload_is_one_that_kubernetes_has(name: str, tmp_path: Path) -> None:
    assert _unknown(rendered(name, tmp_path)) == set()


def test_the_job_is_one_that_kubernetes_has() -> None:
    text = (FOLDER / "jobs/job.yaml").read_text()
    assert _unknown(text) == set()
    wrong = text.replace("hostNetwork:", "hostNetwrok:")
    assert _unknown(wrong) == {".spec.template.spec.hostNetwrok"}


def test_components_add_what_they_say_and_take_nothing_away(tmp_path: Path) -> None:
    def agent(name: str) -> str:
        objects = yaml.safe_load_all(rendered(name, tmp_path))
        (found,) = [one for one in objects if one["kind"] == "DaemonSet"]
        return json.dumps(found["spec"]["template"]["spec"])

    base = agent("base")
    assert "nvidia" not in base
    assert '"runtimeClassName": "nvidia"' in agent("example")
    assert '"resourceClaimTemplateName": "everstep-agent-gpus"' in agent("cdi")
    assert "NVIDIA_VISIBLE_DEVICES" not in agent("cdi")
    for name in ("base", "example", "cdi"):
        assert '"hostPID": true' in agent(name)
        assert '"privileged"' not in agent(name)


def test_a_half_configured_overlay_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copy)
    (copy / "components/monitoring/rules.yaml").unlink()
    done = subprocess.run(
        ["kubectl", "kustomize", copy / "example"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "rules.yaml" in done.stderr
