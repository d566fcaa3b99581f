"""A system bus with a systemd on it: the real wire protocol over a real socket, few answers."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jeepney import DBusAddress, HeaderFields, Message, MessageType, Parser, new_signal
from jeepney.wrappers import new_error, new_method_return

_ROW = "a(ssssssouso)"
_SERVICE = "org.freedesktop.systemd1"
_SIGNATURES = {bool: "b", int: "u", str: "s"}


@dataclass
class FakeUnit:
    """One unit, as systemd would tell it; ``properties`` by their names."""

    load: str = "loaded"
    active: str = "active"
    sub: str = "running"
    properties: dict[str, bool | int | str] = field(default_factory=dict)


@dataclass
class FakeSystemd:
    """The units that are there, and what was asked."""

    units: dict[str, FakeUnit] = field(default_factory=dict)
    present: bool = True
    # Held while a call is answered: a test that holds it makes systemd hang.
    answering: threading.Lock = field(default_factory=threading.Lock)
    asked: list[str] = field(default_factory=list)

    def answer(self, question: Message) -> Message:
        """Return what systemd would say."""
        fields = question.header.fields
        member = str(fields[HeaderFields.member])
        self.asked.append(member)
        with self.answering:
            if fields[HeaderFields.destination] != _SERVICE:
                body = (":1.1",) if member == "Hello" else ()
                return new_method_return(question, "s" if body else None, body)
            if not self.present:
                unknown = "org.freedesktop.DBus.Error.ServiceUnknown"
                return new_error(question, unknown, "s", ("nobody has this name",))
            if member == "ListUnitsByNames":
                rows = [self._row(name) for name in question.body[0]]
                return new_method_return(question, _ROW, (rows,))
            if member == "Get":
                return self._property(question)
            return new_method_return(question)

    def _row(self, name: str) -> tuple[object, ...]:
        unit = self.units.get(name, FakeUnit("not-found", "inactive", "dead"))
        return (name, "", unit.load, unit.active, unit.sub, "", unit_path(name), 0, "", "/")

    def _property(self, question: Message) -> Message:
        name = next(
            n for n in self.units if unit_path(n) == question.header.fields[HeaderFields.path]
        )
        value = self.units[name].properties.get(question.body[1])
        if value is None:
            return new_error(question, "org.freedesktop.DBus.Error.UnknownProperty", "s", ("?",))
        return new_method_return(question, "v", ((_SIGNATURES[type(value)], value),))


def unit_path(name: str) -> str:
    """Return the object path of a unit, escaped as systemd does."""
    escaped = "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in name)
    return f"/org/freedesktop/systemd1/unit/{escaped}"


class FakeBus:
    """Serves connections on a socket until it is closed."""

    def __init__(self, path: Path, systemd: FakeSystemd) -> None:
        self._systemd = systemd
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        # Those that asked for signals.
        self._hearing: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def changed(self, name: str) -> None:
        """Tell everybody who listens that a unit changed."""
        address = DBusAddress(unit_path(name), _SERVICE, "org.freedesktop.DBus.Properties")
        signal = new_signal(address, "PropertiesChanged", "sa{sv}as", (_SERVICE, [], []))
        for connection in self._hearing:
            connection.sendall(signal.serialise(serial=1))

    @property
    def listeners(self) -> int:
        """Return how many connections asked for signals."""
        return len(self._hearing)

    def hang_up(self) -> None:
        """End every connection; new ones are accepted."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections, self._hearing = [], []

    def close(self) -> None:
        """End the bus."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            parser = Parser()
            data = _authenticated(connection) or connection.recv(65536)
            while data:
                parser.add_data(data)
                for question in _messages(parser):
                    self._hears(connection, question)
                    answer = self._systemd.answer(question)
                    connection.sendall(answer.serialise(serial=1))
                data = connection.recv(65536)

    def _hears(self, connection: socket.socket, question: Message) -> None:
        asks = question.header.fields[HeaderFields.member] == "AddMatch"
        if asks and connection not in self._hearing:
            self._hearing.append(connection)


def _messages(parser: Parser) -> Iterator[Message]:
    while message := parser.get_next_message():
        assert message.header.message_type is MessageType.method_call
        yield message


def _authenticated(connection: socket.socket) -> bytes:
    """Speak the handshake; return what came behind it."""
    said = b""
    while b"BEGIN\r\n" not in said:
        data = connection.recv(4096)
        if not data:
            raise ConnectionResetError
        said += data
        if b"AUTH EXTERNAL" in data:
            connection.sendall(b"OK 1234deadbeef\r\n")
    return said.partition(b"BEGIN\r\n")[2]
