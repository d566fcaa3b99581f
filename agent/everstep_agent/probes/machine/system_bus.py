"""System bus client: asks systemd for the state of its units by D-Bus."""

import errno
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jeepney.io.blocking import DBusConnection

SYSTEM_BUS = Path("/run/dbus/system_bus_socket")
_SYSTEMD = "org.freedesktop.systemd1"
_BUS = "org.freedesktop.DBus"
_MANAGER_PATH = "/org/freedesktop/systemd1"
# D-Bus errors when systemd is not on the bus: in a container, or with another service manager.
_NO_SYSTEMD = ("ServiceUnknown", "NameHasNoOwner", "Spawn.", "ServiceNotFound")
# The caller has a deadline of its own; this longer one only ends the thread at some time.
_CALL_S = 10.0
# Errors that the D-Bus library raises for bytes that are no message, besides OSError.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, struct.error)


class NoServiceManagerError(OSError):
    """There is no system bus, or no systemd on it: a fact about the machine, not a fault."""


class BusError(OSError):
    """The bus or systemd answered with an error, or not at all."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as ListUnitsByNames tells it."""

    name: str
    load: str
    active: str
    sub: str
    path: str


class SystemBus:
    """One connection to the system bus; it is opened with the first question."""

    def __init__(self, path: Path = SYSTEM_BUS) -> None:
        self._path = path
        self._connection: DBusConnection | None = None

    def units(self, names: Sequence[str]) -> list[Unit]:
        """Return the named units, in this order. Raises OSError."""
        (rows,) = self._call(
            _MANAGER_PATH, f"{_SYSTEMD}.Manager", "ListUnitsByNames", "as", list(names)
        )
        # An alias comes back under its other name: the order tells which was asked for.
        return [
            Unit(name, str(row[2]), str(row[3]), str(row[4]), str(row[6]))
            for name, row in zip(names, _rows(rows), strict=False)
        ]

    def ask(self, path: str, interface: str, name: str) -> object:
        """Return one property of a unit; interface "Unit" or "Service". Raises OSError."""
        properties = "org.freedesktop.DBus.Properties"
        (variant,) = self._call(path, properties, "Get", "ss", f"{_SYSTEMD}.{interface}", name)
        if not isinstance(variant, tuple) or len(variant) != 2:
            raise BusError(f"systemd answered {name} with {variant!r}")
        value: object = variant[1]
        return value

    def signals(self, paths: Sequence[str]) -> socket.socket:
        """Return a socket on which something comes when one of the units changes.

        A connection of its own, because the event loop waits on it. Raises OSError.
        """
        other = SystemBus(self._path)
        try:
            # systemd sends no signals unless somebody has asked for them.
            other._call(_MANAGER_PATH, f"{_SYSTEMD}.Manager", "Subscribe", "")
            for path in paths:
                rule = f"type='signal',sender='{_SYSTEMD}',member='PropertiesChanged',path='{path}'"
                other._call("/org/freedesktop/DBus", _BUS, "AddMatch", "s", rule, to=_BUS)
            own: socket.socket = other._connected().sock.dup()
        finally:
            other.close()
        own.setblocking(False)
        return own

    def close(self) -> None:
        """Hang up; the next question connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _call(
        self, path: str, interface: str, method: str, signature: str, *body: object, to: str = ""
    ) -> tuple[object, ...]:
        # Imported only here: machines without a system bus do not need it.
        from jeepney import DBusAddress, MessageFlag, MessageType, new_method_call

        address = DBusAddress(path, to or _SYSTEMD, interface)
        question = new_method_call(address, method, signature or None, body)
        question.header.flags |= MessageFlag.no_auto_start
        try:
            answer = self._connected().send_and_get_reply(question, timeout=_CALL_S)
        except NoServiceManagerError:
            raise
        except (OSError, *_DAMAGE) as error:
            self.close()
            raise BusError(f"system bus: {error or type(error).__name__}") from error
        if answer.header.message_type is not MessageType.error:
            return tuple(answer.body)
        name = str(list(answer.header.fields.values()))
        told = str(answer.body[0]) if answer.body else name
        if any(word in name for word in _NO_SYSTEMD):
            raise NoServiceManagerError(f"no systemd on the system bus: {told}")
        raise BusError(f"systemd: {told}")

    def _connected(self) -> "DBusConnection":
        if self._connection is None:
            from jeepney.io.blocking import open_dbus_connection

            try:
                self._connection = open_dbus_connection(f"unix:path={self._path}")
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                    raise NoServiceManagerError(f"no system bus at {self._path}") from error
                raise
        return self._connection


def _rows(rows: object) -> list[tuple[object, ...]]:
    if not isinstance(rows, list):
        raise BusError(f"systemd listed units as {type(rows).__name__}")
    return [row for row in rows if isinstance(row, tuple) and len(row) >= 7]
