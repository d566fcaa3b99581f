"""Certificates for every process of a fleet in tests, and for who operates it."""

from collections.abc import Callable, Iterable
from pathlib import Path

from everstep_proto.tls import TlsSettings
from fakes.authority import Authority
from integration.real_fleet import Place


def certified_places(
    names: Iterable[str], folder: Path, place: Callable[[str, str], Place]
) -> tuple[dict[str, Place], TlsSettings]:
    """Return where nodes and controller run, each with a certificate, and the operator's one.

    ``place`` makes one of the node's name (or "controller") and the table of its configuration.
    """
    authority = Authority(folder)
    issued = {name: authority.issue(name, "agent") for name in names}
    ours = authority.issue("controller", "operator")
    places = {
        name: place(name, _table(tls)) for name, tls in {**issued, "controller": ours}.items()
    }
    return places, TlsSettings(
        ca=ours.ca, certificate=ours.certificate, key=ours.key, server_name="localhost"
    )


def here(_: str, table: str) -> Place:
    """Return a place beside all others."""
    return Place(tls=table)


def _table(tls: TlsSettings) -> str:
    files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
    lines = "".join(f'{key} = "{path}"\n' for key, path in files.items())
    return f'[tls]\n{lines}server_name = "localhost"\n'
