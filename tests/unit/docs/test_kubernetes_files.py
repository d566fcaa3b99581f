"""The files below kubernetes/: what is generated, what daemons read, and what refers to what."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate_kubernetes
import pytest
import yaml

from everstep.launch.command_line.options import parse_options
from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import ConfigError, load
from everstep_controller.config.controller_config import ControllerConfig

Json = dict[str, Any]

_FOLDER = Path(__file__).parents[3] / "kubernetes"
_POD = {"NODE_NAME": "gpu-1.rack", "HOST_IP": "10.0.0.9"}
_JOBS = ("job", "jobset", "pytorchjob", "trainjob")


def _objects(path: Path) -> list[Json]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def _base() -> list[Json]:
    listed = yaml.safe_load((_FOLDER / "base/kustomization.yaml").read_text())["resources"]
    return [one for name in listed for one in _objects(_FOLDER / "base" / name)]


def _pods(one: object) -> Iterator[Json]:
    """Yield the templates of pods in an object, wherever they are."""
    if isinstance(one, dict):
        spec = one.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield one
        for inner in one.values():
            yield from _pods(inner)
    elif isinstance(one, list):
        for inner in one:
            yield from _pods(inner)


def test_what_is_generated_is_as_it_would_be() -> None:
    for path, text in generate_kubernetes.files():
        assert path.read_text() == text, f"{path}: 'make reference' writes it anew"


def test_the_agents_configuration_is_one_for_a_pod() -> None:
    config = load(AgentConfig, _FOLDER / "base/agent.toml", environ=_POD)
    assert (config.node_name, config.host) == ("gpu-1.rack", "10.0.0.9")
    assert config.unreachable() == []
    assert config.enrolment.by_pod
    with pytest.raises(ConfigError, match="node: the environment has no variable NODE_NAME"):
        load(AgentConfig, _FOLDER / "base/agent.toml", environ={})


def test_the_controllers_configuration_lacks_only_what_init_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (_FOLDER / "base/controller.toml").read_text()
    state = "/var/lib/everstep-controller"
    path = tmp_path / "controller.toml"
    path.write_text(text.replace(state, str(tmp_path / "state")))
    with pytest.raises(ConfigError) as raised:
        load(ControllerConfig, path)
    missing = [one.partition(": ")[2].partition(":")[0] for one in raised.value.problems]
    assert missing == ["tls.ca", "tls.certificate", "tls.key", "enrolment.ca_key"]


def test_accounts_maps_and_services_are_those_that_the_configurations_name() -> None:
    told = tomllib.loads((_FOLDER / "base/controller.toml").read_text())["enrolment"]
    objects = _base()
    named = {
        (one["kind"], f"{one['metadata'].get('namespace')}/{one['metadata']['name']}")
        for one in objects
    }
    assert {("ServiceAccount", one) for one in told["kubernetes_accounts"]} <= named
    assert ("ConfigMap", told["kubernetes_authority"]) in named
    assert ("Service", "everstep/everstep-controller") in named
    agent = tomllib.loads((_FOLDER / "base/agent.toml").read_text())
    assert agent["enrolment"]["address"] == told["address"]
    (service,) = [
        one for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("Service", "everstep-controller")
    ]  # fmt: skip
    ports = {port["port"] for port in service["spec"]["ports"]}
    assert {int(agent["controller"].rpartition(":")[2]), 7438} == ports


@pytest.mark.parametrize("path", sorted(_FOLDER.rglob("*.yaml")), ids=lambda one: one.name)
def test_each_object_is_one_and_its_pods_mount_what_they_have(path: Path) -> None:
    for one in _objects(path):
        assert {"apiVersion", "kind"} <= one.keys()
        for pod in _pods(one):
            spec = pod["spec"]
            claimed = {claim["metadata"]["name"] for claim in _claims(one)}
            has = {volume["name"] for volume in spec["volumes"]} | claimed
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                assert {mount["name"] for mount in container["volumeMounts"]} <= has
                assert container["securityContext"]["allowPrivilegeEscalation"] is False
                assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


def _claims(one: Json) -> list[Json]:
    found: list[Json] = one.get("spec", {}).get("volumeClaimTemplates", [])
    return found


@pytest.mark.parametrize("name", _JOBS)
def test_the_launcher_of_each_job_takes_its_command_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    told = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "CUDA_VISIBLE_DEVICES": "",
        **{
            "jobset": {"JOBSET_NAME": "llm", "JOB_COMPLETION_INDEX": "2"},
            "pytorchjob": {"PET_NNODES": "14:17", "PET_RDZV_ENDPOINT": "llm-worker-0:23456"},
            "trainjob": {
                "PET_NNODES": "17",
                "PET_NPROC_PER_NODE": "8",
                "PET_MASTER_ADDR": "llm-node-0-0.llm",
                "PET_NODE_RANK": "2",
                "JOB_COMPLETION_INDEX": "2",
            },
        }.get(name, {}),
    }
    lines = [_line(one) for one in _objects(_FOLDER / f"jobs/{name}.yaml")]
    (*_, line) = [one for one in lines if one]
    assert line[:2] == ["everstep", "run"]
    words = [word.replace("/shared", str(tmp_path)) for word in line[2:]]
    options = parse_options(words, told)
    assert (options.job, options.nodes_min, options.nodes_max) == ("llm", 14, 16)
    assert options.processes_per_node == 8
    assert options.keep.storage is not None


def _line(one: Json) -> list[str]:
    trainer = one.get("spec", {}).get("trainer")
    if trainer is not None:
        return [*trainer["command"], *trainer["args"]]
    return next(
        (
            [*container["command"], *container["args"]]
            for pod in _pods(one)
            for container in pod["spec"]["containers"]
        ),
        [],
    )
