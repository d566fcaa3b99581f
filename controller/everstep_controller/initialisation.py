"""``everstep-controller init``: makes a cluster's id, authority and first certificates.

What is there already stays as it is: the command can be run again after it was interrupted, to add
a name of the controller or another operator, and says what it made and what it found.
"""

import argparse
import os
import pwd
import socket
import sys
import time
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from everstep_common.config import EX_CONFIG, ConfigError, load
from everstep_common.toml_edit import Key, TomlConflictError, Value, with_values
from everstep_controller.config.controller_config import ControllerConfig, default_journal
from everstep_controller.core.fleet.enrolment import CLOCK_APART_MAX_S, shown_s
from everstep_controller.enrolment.own_certificate import (
    hosts_of,
    own_wanted,
    sign_with_key,
)
from everstep_controller.enrolment.settings import EnrolmentSettings
from everstep_controller.enrolment.signer import (
    Authority,
    SigningError,
    Wanted,
    is_signed_by,
    new_authority,
)
from everstep_controller.journal.address import is_url
from everstep_controller.runtime.cluster_file import Cluster, ClusterFile
from everstep_proto.enrolment.messages import DEFAULT_PORT
from everstep_proto.enrolment.owned_files import replace_file
from everstep_proto.enrolment.validity import validity
from everstep_proto.tls import Role

_DEFAULT_CONFIG = Path("/etc/everstep/controller.toml")
_SERVICE_USER = "everstep-controller"
_AGENTS_PORT = 7433
_DAY_S = 86_400
_AUTHORITY_DAYS, _OPERATOR_DAYS = 3650, 365
_EPILOG = """\
The authority's key signs all certificates: whoever has it can be any node and any operator. It is
written with mode 0600 for the controller's user. To have it elsewhere (a KMS, Vault, cert-manager),
name a program as enrolment.sign_command that signs there, and remove the file and enrolment.ca_key;
for an authority that your site has, name its files in [tls] and do not run this command.
"""


class InitError(Exception):
    """The command cannot go on; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is, or is to be."""

    config: Path
    folder: Path
    cluster: Path
    operators: Path

    @property
    def authority(self) -> Path:
        """Return the file of the authority's certificate."""
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        """Return the file of the authority's key."""
        return self.folder / "ca.key"

    @property
    def unfinished_key(self) -> Path:
        """Return the file of a key whose certificate is not written yet."""
        return self.folder / ".ca.key.unfinished"

    @property
    def own(self) -> Path:
        """Return the file of the controller's certificate, with its key."""
        return self.folder / "controller.pem"


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code: 0 done, 1 not, 78 wrong configuration."""
    given = _parser().parse_args(words)
    try:
        people = People(given.operator, given.viewer or "", given.operators)
        for line in initialise(given.config or _DEFAULT_CONFIG, given.name, people):
            print(line)
    except ConfigError as error:
        for problem in error.problems:
            print(f"everstep-controller init: {problem}", file=sys.stderr)
        return EX_CONFIG
    except (InitError, SigningError) as error:
        print(f"everstep-controller init: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        print(
            f"everstep-controller init: {what}{error.strerror or error}; run it as root, or with "
            "--config FILE in a folder of yours",
            file=sys.stderr,
        )
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class People:
    """Who gets a certificate besides the controller, and where these are put."""

    operator: str = "admin"
    # Who only looks, such as Prometheus; "": nobody.
    viewer: str = ""
    # None: beside the configuration.
    folder: Path | None = None


_ADMIN = People()


def initialise(
    config_path: Path,
    names: Sequence[str],
    people: People = _ADMIN,
    wall_s: float | None = None,
) -> Iterator[str]:
    """Make what is missing; yield a line for each thing. Raises InitError, ConfigError, OSError."""
    now_s = time.time() if wall_s is None else wall_s
    text = config_path.read_text() if config_path.exists() else ""
    places = _places(text, config_path, people.folder)
    hosts = list(dict.fromkeys(names)) or _own_names()
    configured = _configured(text, places, hosts, config_path)
    owner = _owner(places.folder)
    _make_folder(places.folder, owner)
    yield from _make_cluster(places, owner)
    authority, line = _authority(places, owner, now_s)
    yield line
    yield from _own_certificate(places, authority, names, hosts, owner, now_s)
    yield from _person(places, authority, people.operator, Role.OPERATOR, now_s)
    if people.viewer:
        yield from _person(places, authority, people.viewer, Role.VIEWER, now_s)
    if configured != text:
        config_path.parent.mkdir(parents=True, exist_ok=True)
        mode = config_path.stat().st_mode & 0o777 if config_path.exists() else 0o644
        replace_file(config_path, configured.encode(), mode)
        yield f"configuration: {config_path} has listen, [tls] and [enrolment] now"
    else:
        yield f"configuration: {config_path} has what is needed"
    load(ControllerConfig, config_path)
    yield from _what_next(places, hosts_of(_certificate(places.own)), people.operator, configured)


# --- what is made --------------------------------------------------------------------------------


def _make_cluster(places: Places, owner: os.stat_result | None) -> Iterator[str]:
    file = ClusterFile(places.cluster)
    known = file.read()
    if known is not None:
        yield f"cluster: {known.id}, as {places.cluster} says"
        return
    if (places.folder.parent / "journal.sqlite").exists():
        yield "cluster: the journal has its id"
        return
    made = Cluster(uuid.uuid4().hex)
    file.write(made)
    if owner is not None and places.cluster.exists():
        os.chown(places.cluster, owner.st_uid, owner.st_gid)
    yield f"cluster: {made.id}, new"


def _authority(places: Places, owner: os.stat_result | None, now_s: float) -> tuple[Authority, str]:
    _end_interrupted(places)
    there = places.authority.exists(), places.key.exists()
    if there == (True, True):
        authority = Authority.load(places.authority, places.key)
        return authority, f"authority: {places.authority} is there; its key is {places.key}"
    if there == (True, False):
        raise InitError(
            f"{places.authority} is there and its key {places.key} is not: put the key back, or "
            "have a program sign (enrolment.sign_command); a new authority would shut out every "
            f"node that trusts this one: only where there is none, remove {places.authority}"
        )
    if there == (False, True):
        raise InitError(
            f"{places.key} is there and its certificate {places.authority} is not: put it back, or "
            "remove the key where no node trusts it yet, and run this again"
        )
    name = f"everstep-{uuid.uuid4().hex[:8]}"
    since_s = int(now_s) - CLOCK_APART_MAX_S
    authority, key = new_authority(name, since_s, since_s + _AUTHORITY_DAYS * _DAY_S)
    # The certificate first: an interrupted start that left only a key would never be trusted.
    pem = authority.certificate.public_bytes(Encoding.PEM)
    replace_file(places.unfinished_key, key, owner=owner)
    replace_file(places.authority, pem, 0o644, owner)
    os.replace(places.unfinished_key, places.key)
    return authority, (
        f"authority: {places.authority}, new, for ten years; its key is {places.key} (mode 0600, "
        f"{_user_of(places.key)}): back it up where nobody reads it"
    )


def _end_interrupted(places: Places) -> None:
    """Go on where the making of the authority was interrupted: nobody trusts it yet."""
    if not places.unfinished_key.exists() or places.key.exists():
        return
    if not places.authority.exists():
        places.unfinished_key.unlink()
        return
    Authority.load(places.authority, places.unfinished_key)  # raises where it is another one's
    os.replace(places.unfinished_key, places.key)


def _own_certificate(
    places: Places,
    authority: Authority,
    names: Sequence[str],
    hosts: list[str],
    owner: os.stat_result | None,
    now_s: float,
) -> Iterator[str]:
    known: list[str] = []
    if places.own.exists():
        own = _certificate(places.own)
        if not is_signed_by(own, [authority.certificate]):
            raise InitError(
                f"{places.own} was signed by another authority than {places.authority}; move it "
                "away and run this again"
            )
        known = hosts_of(own)
        valid = validity(places.own.read_bytes())
        if set(names) <= set(known) and now_s < valid.ends_s:
            yield f"controller: {places.own} is there, for {', '.join(known)}"
            return
        hosts = list(dict.fromkeys([*known, *hosts]))
    wanted = own_wanted(hosts[0], hosts, now_s, EnrolmentSettings().certificate_s)
    _, pem = sign_with_key(authority, wanted)
    replace_file(places.own, pem, owner=owner)
    yield f"controller: {places.own}, for {', '.join(hosts)}; it renews itself"


def _person(
    places: Places, authority: Authority, name: str, role: Role, now_s: float
) -> Iterator[str]:
    file = places.operators / f"{name}.pem"
    if file.exists() and now_s < validity(file.read_bytes()).ends_s:
        yield f"{role.value}: {file} is there"
        return
    places.operators.mkdir(mode=0o700, parents=True, exist_ok=True)
    since_s = int(now_s) - CLOCK_APART_MAX_S
    wanted = Wanted(
        name=name,
        role=role,
        since_s=since_s,
        ends_s=int(now_s) + _OPERATOR_DAYS * _DAY_S,
    )
    signed, pem = sign_with_key(authority, wanted)
    replace_file(file, pem)
    ca = authority.certificate.public_bytes(Encoding.PEM)
    replace_file(places.operators / "ca.pem", ca, 0o644)
    yield f"{role.value}: {file} for {name}, until {shown_s(signed.ends_s)}"


def _configured(text: str, places: Places, hosts: Sequence[str], path: Path) -> str:
    wanted: dict[Key, Value] = {
        ("", "listen"): f"0.0.0.0:{_AGENTS_PORT}",
        ("tls", "ca"): str(places.authority),
        ("tls", "certificate"): str(places.own),
        ("tls", "key"): str(places.own),
        ("enrolment", "listen"): f"0.0.0.0:{DEFAULT_PORT}",
        ("enrolment", "address"): f"{hosts[0]}:{_port(text, 'enrolment', DEFAULT_PORT)}",
        ("enrolment", "ca_key"): str(places.key),
    }
    for key in (("", "listen"), ("enrolment", "listen"), ("enrolment", "address")):
        if _is_chosen(text, *key):
            del wanted[key]
    # The example that is shipped has the default written out.
    shipped: dict[Key, Value] = {
        ("", "listen"): "unix:/run/everstep-controller/controller.sock",
    }
    try:
        return with_values(text, wanted, shipped)
    except (TomlConflictError, ValueError) as error:
        raise InitError(
            f"{path}: {error}: this controller has certificates of its own; to have them signed "
            "here instead, remove these keys and run this again (docs/enrolment.md)"
        ) from error


def _port(text: str, table: str, default: int) -> int:
    """Return the port of the address that a table listens at."""
    told = tomllib.loads(text)
    address = str((told.get(table, {}) if table else told).get("listen", ""))
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() and not address.startswith("unix:") else default


def _is_chosen(text: str, table: str, key: str) -> bool:
    """Return whether somebody chose an address other than the socket of this machine."""
    part = tomllib.loads(text)
    value = (part.get(table, {}) if table else part).get(key, "")
    return bool(value) and not str(value).startswith("unix:")


def _what_next(
    places: Places, hosts: Sequence[str], operator: str, configured: str
) -> Iterator[str]:
    file, authority = places.operators / f"{operator}.pem", places.operators / "ca.pem"
    yield ""
    yield "Start the controller (systemctl enable everstep-controller && systemctl restart"
    yield "everstep-controller), and be an operator in this shell:"
    address = f"{hosts[0]}:{_port(configured, '', _AGENTS_PORT)}"
    yield f"  export EVERSTEP_CONTROLLER={address} EVERSTEP_TLS_CA={authority} \\"
    yield f"         EVERSTEP_TLS_CERTIFICATE={file} EVERSTEP_TLS_KEY={file}"
    yield "Let nodes join, by the line that this prints:"
    yield "  everstep tokens make --node gpu-0042"


# --- what is there -------------------------------------------------------------------------------


def _places(text: str, path: Path, operators: Path | None) -> Places:
    """Return them by what a configuration says that may not be whole yet. Raises InitError."""
    try:
        told = tomllib.loads(text)
    except ValueError as error:
        raise InitError(f"{path}: not valid TOML: {error}") from error
    named = str(told.get("journal") or "")
    journal = default_journal() if is_url(named) or not named else Path(named)
    cluster = told.get("cluster_file")
    return Places(
        config=path,
        folder=journal.parent / "tls",
        cluster=Path(str(cluster)) if cluster else path.with_suffix(".cluster"),
        operators=operators or path.parent.absolute() / "operators",
    )


def _own_names() -> list[str]:
    """Return the names and addresses under which this machine is reached."""
    found = [socket.gethostname(), socket.getfqdn()]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only says from which address one would be.
        probe.connect(("192.0.2.1", 9))
        found.append(str(probe.getsockname()[0]))
    return [one for one in dict.fromkeys([*found, "localhost", "127.0.0.1"]) if one]


def _owner(folder: Path) -> os.stat_result | None:
    """Return whose files these are to be, where this is root: the service's user."""
    if os.geteuid() != 0:
        return None
    if folder.parent.exists() and folder.parent.stat().st_uid != 0:
        return folder.parent.stat()
    try:
        user = pwd.getpwnam(_SERVICE_USER)
    except KeyError:
        return None
    folder.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    os.chown(folder.parent, user.pw_uid, user.pw_gid)
    return folder.parent.stat()


def _make_folder(folder: Path, owner: os.stat_result | None) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if owner is not None:
        os.chown(folder, owner.st_uid, owner.st_gid)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise InitError(f"{path} is no certificate: move it away and run this again") from error


def _user_of(path: Path) -> str:
    uid = path.stat().st_uid
    try:
        return f"of {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"of uid {uid}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-controller init",
        description="Makes a cluster: its id, an authority, the certificates of this controller "
        "and of an operator. What is there already is not touched.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="host name or address at which nodes reach this controller; several times for several;"
        " by default those of this machine",
    )
    parser.add_argument(
        "--operator",
        default="admin",
        type=_operator_name,
        metavar="NAME",
        help="whose certificate is made; admin by default",
    )
    parser.add_argument(
        "--viewer",
        type=_operator_name,
        metavar="NAME",
        help="also make a certificate that only looks, for Prometheus or people",
    )
    parser.add_argument(
        "--operators",
        type=Path,
        metavar="FOLDER",
        help="where certificates of people are put; 'operators' beside the configuration by "
        "default",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"{_DEFAULT_CONFIG} by default")
    return parser


def _operator_name(text: str) -> str:
    if not text or not all(one.isalnum() or one in "._@-" for one in text) or text[0] in ".-":
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name: letters, digits, '.', '_', '@', '-'"
        )
    return text
