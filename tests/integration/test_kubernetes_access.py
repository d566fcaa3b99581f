"""How the Kubernetes driver gets in: each mistake in a kubeconfig is one sentence about it."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.port import DriverContext, DriverError
from fakes.kubernetes.server import DRIVER_TOKEN, FakeApiServer
from fakes.kubernetes.site import fake_cluster
from kubernetes_suite.cluster import Cluster

Json = dict[str, Any]
_API = "client.authentication.k8s.io/"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Cluster, FakeApiServer]]:
    made, fake = fake_cluster(tmp_path)
    made.allow(KubernetesDriverConfig(access=str(made.kubeconfig)))
    made.make(1)
    yield made, fake
    made.human.client.close()
    fake.stop()


def answer(access: Path | str, context: str = "") -> str:
    """Return why a driver with this access reads nothing; empty where it reads."""

    async def read() -> str:
        config = KubernetesDriverConfig(access=str(access), context=context)
        assert config.problems() == []
        driver = config.driver(DriverContext(60.0, lambda: ["n-0"], lambda: "c1"))
        assert driver is not None
        try:
            assert (await driver.read()).nodes.keys() == {"n-0"}
        except DriverError as error:
            return str(error)
        finally:
            await driver.close()  # type: ignore[attr-defined]
        return ""

    return asyncio.run(read())


def user(**fields: object) -> Callable[[Json], object]:
    return lambda config: config["users"][0].update(user=fields)


def server(**fields: object) -> Callable[[Json], object]:
    return lambda config: config["clusters"][0]["cluster"].update(fields)


def in_context(**fields: object) -> Callable[[Json], object]:
    return lambda config: config["contexts"][0]["context"].update(fields)


def changed(cluster: Cluster, change: Callable[[Json], object]) -> Path:
    """Return a kubeconfig like the good one but for a change."""
    config = deepcopy(yaml.safe_load(cluster.kubeconfig.read_text()))
    change(config)
    path = cluster.kubeconfig.with_name("changed")
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda config: config.pop("current-context"), "has no current-context; it has c"),
        (in_context(cluster="x"), "it has no cluster 'x'"),
        (in_context(user="x"), "it has no user 'x'"),
        (lambda config: config["contexts"][0]["context"].pop("user"), "names no user"),
        (lambda config: config.pop("clusters"), "it has no cluster 'c'"),
        (user(), "its user has no token, tokenFile, client-certificate or exec"),
        (user(tokenFile="gone"), "gone: No such file"),
        (user(tokenFile="."), "Is a directory"),
        (user(token="secret\nsecret"), "token: not one token"),
        (user(token="wrong"), "does not accept the kubeconfig"),
        (user(token="x", **{"as": "root"}), "user everstep: as: impersonation is not used"),
        (user(**{"auth-provider": {"name": "gcp"}}), "auth-provider: Kubernetes has removed it"),
        (user(**{"client-certificate": "ca.crt"}), "its client-key go together"),
        (
            user(**{"client-certificate": "no.crt", "client-key": "no.key"}),
            r"no\.crt: No such file.*; client-key .*no\.key: No such file",
        ),
        (server(server="127.0.0.1:6443"), "server: expected https://HOST:PORT, got '127"),
        (
            server(server="https://127.0.0.1:1"),
            r"https://127\.0\.0\.1:1 cannot be reached: .*; does",
        ),
        (server(**{"certificate-authority": "token"}), "its certificates or key cannot be used"),
        (server(**{"certificate-authority-data": "%"}), "certificate-authority-data: not base64"),
        (server(**{"proxy-url": "http://p"}), "proxy-url: proxies are not used"),
        (server(**{"tls-server-name": "x"}), "tls-server-name: not used: name the server"),
        (user(exec={"apiVersion": _API + "v1"}), "exec: expected a command"),
        (user(exec={"apiVersion": _API + "v1alpha1", "command": "x"}), "expected client.*, got"),
        (
            user(exec={"apiVersion": _API + "v1", "command": "x", "interactiveMode": "Always"}),
            "a controller has no terminal",
        ),
        (
            user(exec={"apiVersion": _API + "v1", "command": "no-such", "installHint": "get it"}),
            "program no-such of exec cannot be run: No such file or directory; get it",
        ),
    ],
)
def test_a_mistake_of_a_kubeconfig_is_told(
    both: tuple[Cluster, FakeApiServer], change: Callable[[Json], object], sentence: str
) -> None:
    said = answer(changed(both[0], change))
    assert re.search(sentence, said), said
    assert "secret" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no kubeconfig: it has no contexts"),
        ("- a", "is no kubeconfig"),
        ("a: b\n{:::", "is not YAML: .* in line 2"),
        ("kind: Config", "has no current-context; it has none"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    assert re.search(sentence, answer(file))


def test_a_file_that_is_not_there_and_a_context_that_is_none_are_told(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    assert "cannot be read: No such file" in answer(tmp_path / "nowhere")
    assert "cannot be read: Is a directory" in answer(tmp_path)
    assert "has no context 'prod'; it has c: set" in answer(both[0].kubeconfig, "prod")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "is not YAML" in answer(tmp_path / "binary")


def test_a_controller_in_no_pod_is_told_what_to_look_at() -> None:
    said = answer("in-cluster")
    assert "No such file or directory; is the controller in a pod" in said


def test_a_certificate_of_another_name_is_told(both: tuple[Cluster, FakeApiServer]) -> None:
    cluster, fake = both
    said = answer(changed(cluster, server(server=f"https://localhost:{fake.port}")))
    assert "not valid for 'localhost'; name the server as its certificate does" in said


def test_a_user_of_few_rights_is_told_how_it_gets_them(
    both: tuple[Cluster, FakeApiServer],
) -> None:
    cluster, fake = both
    fake.tokens["weak"] = "ann"
    weak = changed(cluster, user(token="weak"))
    said = answer(weak)
    assert "may not get nodes, list nodes, watch nodes, patch nodes, patch nodes/status" in said
    assert "everstep-controller kubernetes rbac --user NAME | kubectl apply -f -" in said
    # A role of a namespace is not enough for nodes, which are of the cluster.
    config = KubernetesDriverConfig(access="/x")
    cluster.human.apply(config.rbac("everstep", "ann").replace("ClusterRole", "Role"))
    assert "may not get nodes" in answer(weak)
    cluster.human.apply(config.rbac("everstep", "ann"))
    assert answer(weak) == ""


def program(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"./{name}"


def credential(token: str, version: str = "v1", **status: str) -> str:
    told = {"apiVersion": _API + version, "kind": "ExecCredential"}
    return f"echo '{json.dumps(told | {'status': {'token': token, **status}})}'"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_program_gives_a_token_and_is_told_of_the_cluster(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path, version: str
) -> None:
    cluster, _ = both
    body = (
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told; echo "$1$REGION" >> {tmp_path}/runs\n'
        + credential(DRIVER_TOKEN, version)
    )
    config = {
        "apiVersion": _API + version,
        "command": program(tmp_path, "login", body),
        "args": ["get"],
        "env": [{"name": "REGION", "value": "eu"}],
        "provideClusterInfo": True,
        "interactiveMode": "IfAvailable",
    }
    assert answer(changed(cluster, user(exec=config))) == ""
    assert (tmp_path / "runs").read_text() == "geteu\n"
    told = json.loads((tmp_path / "told").read_text())
    assert told["apiVersion"] == _API + version
    assert told["kind"] == "ExecCredential"
    assert told["spec"]["interactive"] is False
    assert told["spec"]["cluster"].keys() == {"server", "certificate-authority-data"}


def test_a_token_of_a_program_is_asked_for_again_when_it_ends_or_is_refused(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path
) -> None:
    cluster, _ = both
    soon = (datetime.now(UTC) + timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = (
        f"echo x >> {tmp_path}/runs\n"
        f"case $(wc -l < {tmp_path}/runs) in\n"
        f"1) {credential('refused')} ;;\n"
        f"2) {credential(DRIVER_TOKEN, expirationTimestamp=soon)} ;;\n"
        f"*) {credential(DRIVER_TOKEN)} ;;\n"
        "esac"
    )
    config = {"apiVersion": _API + "v1", "command": program(tmp_path, "login", body)}
    assert answer(changed(cluster, user(exec=config))) == ""
    assert (tmp_path / "runs").read_text() == "x\nx\nx\n"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("echo please log in >&2; exit 3", "ended with code 3: please log in"),
        ("echo hello", "has printed no ExecCredential"),
        ("echo '{\"status\": {}}'", "gives no token; certificates of such a program"),
        (credential("secret secret"), "not one token"),
        ("sleep 60", "has printed nothing within 10 s"),
    ],
)
def test_a_program_that_gives_no_token_is_told(
    both: tuple[Cluster, FakeApiServer], tmp_path: Path, body: str, sentence: str
) -> None:
    config = {"apiVersion": _API + "v1", "command": program(tmp_path, "login", body)}
    said = answer(changed(both[0], user(exec=config)))
    assert sentence in said
    assert "secret" not in said
