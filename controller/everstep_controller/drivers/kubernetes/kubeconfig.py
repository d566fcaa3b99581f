"""Kubeconfig: the server, certificates and user of one context, with every mistake of it at once.

What it may say and is not used here (an impersonation, a proxy) is a mistake too: a driver that did
without would be somebody else, or go another way, than its people believe.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightkube import SingleConfig
from lightkube.config.models import Cluster, Context, User

PROGRAM_VERSIONS = ("v1", "v1beta1")
_PROGRAM_GROUP = "client.authentication.k8s.io/"
_PROGRAM_CONFIG = "client.authentication.k8s.io/exec"
_NOT_USED = {
    "cluster": {
        "proxy-url": "proxies are not used: give an address that is reached without one",
        "tls-server-name": "not used: name the server as its certificate does",
    },
    "user": {
        "as": "impersonation is not used: give the credentials of that user",
        "as-groups": "impersonation is not used",
        "as-uid": "impersonation is not used",
        "as-user-extra": "impersonation is not used",
        "auth-provider": "Kubernetes has removed it: use exec",
        "username": "Kubernetes has removed passwords: use a token, a certificate or exec",
    },
}
_DATA = ("certificate-authority-data", "client-certificate-data", "client-key-data")
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")

Json = Mapping[str, Any]


class AccessError(Exception):
    """There is no way to the API server; one sentence says why and what to look at."""


@dataclass(frozen=True, slots=True)
class Program:
    """Program that gives credentials (``exec`` of a user), and what it is told of the cluster."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    version: str
    cluster: Json | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Selected:
    """One context of a kubeconfig: how to connect, by which files, and by which program."""

    config: SingleConfig
    files: tuple[Path, ...]
    program: Program | None = None


def read_kubeconfig(path: Path, context: str) -> Selected:
    """Return a context of a kubeconfig, its current one by default. Raises AccessError."""
    document = _document(path)
    context = context or str(document.get("current-context") or "")
    contexts = _named(document, "contexts", "context")
    if context not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        missing = f"has no context {context!r}" if context else "has no current-context"
        raise AccessError(f"{missing}; it has {known}: set drivers.kubernetes.context")
    chosen = contexts[context]
    mistakes: list[str] = []
    files: dict[str, Path] = {}
    cluster = _part(document, "cluster", chosen.get("cluster"), mistakes)
    user = _part(document, "user", chosen.get("user"), mistakes)
    if not mistakes:
        _check_server(cluster, mistakes)
        files = _files(path, cluster, user, mistakes)
        _check_user(user, mistakes)
    if mistakes:
        raise AccessError("; ".join(mistakes))
    return Selected(
        SingleConfig(
            context_name=context,
            context=Context(cluster=""),
            cluster=_cluster(cluster, files),
            user=_user(user, files),
            fname=path,
        ),
        (path, *files.values()),
        _program(path, user, cluster, files),
    )


def check_token(token: str, place: str) -> str:
    """Return a token that may stand in a header. Raises AccessError, without the token in it."""
    token = token.strip()
    if not token:
        raise AccessError(f"{place}: there is no token in it")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise AccessError(f"{place}: not one token, but something else is in it")
    return token


# -------------------------------------------------------------------------------------------------


def _document(path: Path) -> Json:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise AccessError(
            f"cannot be read: {error.strerror}; is drivers.kubernetes.access its path, and may the "
            "controller read it?"
        ) from error
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise AccessError(f"is not YAML: {error.problem}{line}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AccessError("is not YAML: it is not text") from error
    if not isinstance(document, dict):
        raise AccessError("is no kubeconfig: it has no contexts")
    return document


def _named(document: Json, plural: str, what: str) -> dict[str, Json]:
    rows = document.get(plural)
    return {
        str(row["name"]): row.get(what) or {}
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and "name" in row and isinstance(row.get(what) or {}, dict)
    }


def _part(document: Json, what: str, name: object, mistakes: list[str]) -> Json:
    """Return a cluster or user, and tell what of it is not there or not used."""
    found = _named(document, f"{what}s", what)
    if name is None or str(name) not in found:
        told = f"its context names no {what}" if name is None else f"it has no {what} {name!r}"
        mistakes.append(told)
        return {}
    part = found[str(name)]
    mistakes += [
        f"{what} {name}: {key}: {why}" for key, why in _NOT_USED[what].items() if part.get(key)
    ]
    return part


def _check_server(cluster: Json, mistakes: list[str]) -> None:
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        mistakes.append(f"server: expected https://HOST:PORT, got {server!r}")


def _files(path: Path, cluster: Json, user: Json, mistakes: list[str]) -> dict[str, Path]:
    """Return the files that are named, by their keys; tell which cannot be read."""
    both = {**cluster, **user}
    found = {key: path.parent / str(both[key]) for key in _FILES if both.get(key)}
    for key, file in found.items():
        try:
            content = file.read_bytes()
            if key == "tokenFile":
                check_token(content.decode(errors="replace"), f"tokenFile {file}")
        except OSError as error:
            mistakes.append(f"{key} {file}: {error.strerror}")
        except AccessError as error:
            mistakes.append(str(error))
    for key in _DATA:
        try:
            base64.b64decode(str(both.get(key) or ""), validate=True)
        except binascii.Error:
            mistakes.append(f"{key}: not base64")
    return found


def _check_user(user: Json, mistakes: list[str]) -> None:
    has_certificate = bool(user.get("client-certificate") or user.get("client-certificate-data"))
    if has_certificate != bool(user.get("client-key") or user.get("client-key-data")):
        mistakes.append("a client-certificate and its client-key go together, and one is missing")
    program = user.get("exec")
    if program is not None:
        mistakes += _program_mistakes(program)
    elif user.get("token"):
        try:
            check_token(str(user["token"]), "token")
        except AccessError as error:
            mistakes.append(str(error))
    elif not has_certificate and not user.get("tokenFile"):
        mistakes.append("its user has no token, tokenFile, client-certificate or exec")


def _program_mistakes(program: object) -> list[str]:
    if not isinstance(program, dict) or not program.get("command"):
        return ["exec: expected a command"]
    version = str(program.get("apiVersion", ""))
    known = [_PROGRAM_GROUP + one for one in PROGRAM_VERSIONS]
    if version not in known:
        return [f"exec: apiVersion: expected {' or '.join(known)}, got {version!r}"]
    if program.get("interactiveMode") == "Always":
        return ["exec: interactiveMode: a controller has no terminal: use a program without"]
    return []


def _cluster(cluster: Json, files: Mapping[str, Path]) -> Cluster:
    authority = files.get("certificate-authority")
    return Cluster(
        server=str(cluster["server"]),
        certificate_auth=str(authority) if authority is not None else None,
        certificate_auth_data=cluster.get("certificate-authority-data") or None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
    )


def _user(user: Json, files: Mapping[str, Path]) -> User:
    named = {key: str(files[key]) for key in files}
    return User(
        token=str(user["token"]).strip() if user.get("token") else None,
        token_file=named.get("tokenFile"),
        client_cert=named.get("client-certificate"),
        client_cert_data=user.get("client-certificate-data") or None,
        client_key=named.get("client-key"),
        client_key_data=user.get("client-key-data") or None,
    )


def _program(path: Path, user: Json, cluster: Json, files: Mapping[str, Path]) -> Program | None:
    program = user.get("exec")
    if program is None:
        return None
    command = str(program["command"])
    if "/" in command:  # beside the kubeconfig, as for kubectl
        command = str(path.parent / command)
    return Program(
        command=command,
        arguments=tuple(map(str, program.get("args") or ())),
        environment={str(one["name"]): str(one["value"]) for one in program.get("env") or ()},
        version=str(program["apiVersion"]),
        cluster=_told_cluster(cluster, files) if program.get("provideClusterInfo") else None,
        hint=" ".join(str(program.get("installHint") or "").split()),
    )


def _told_cluster(cluster: Json, files: Mapping[str, Path]) -> Json:
    """Return what a program is told of the cluster, where it asks for that."""
    authority = files.get("certificate-authority")
    data = cluster.get("certificate-authority-data")
    if authority is not None:
        data = base64.b64encode(authority.read_bytes()).decode()
    extensions = cluster.get("extensions") or ()
    config = next((one["extension"] for one in extensions if one["name"] == _PROGRAM_CONFIG), None)
    told = {
        "server": cluster["server"],
        "certificate-authority-data": data,
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify"),
        "config": config,
    }
    return {key: one for key, one in told.items() if one}
