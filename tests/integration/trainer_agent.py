"""A small agent for tests of the trainer: the real protocol over a real socket, no controller."""

import contextlib
import fcntl
import os
import queue
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

from everstep_common.frames import HEADER_BYTES, body_length, decode, encode
from everstep_common.launcher_messages import FROM_LAUNCHER, Join, Joined, OutputSeen, RanksWatched
from everstep_common.preload import Preload
from everstep_common.rank_messages import (
    FROM_TRAINER,
    Attach,
    Attached,
    Begin,
    Commit,
    Committed,
    CommittedAhead,
    Describe,
    DescribedPart,
    Entry,
    NothingToRestore,
    Pending,
    Progress,
    Ready,
    Refused,
    Reserve,
    Reserved,
    Restore,
    RestoredCopies,
    RestoredCopy,
    RestoreFailed,
    Skip,
    Slot,
    Unplanned,
)
from everstep_common.reports import Standbys
from fakes.waits import PATIENCE_S

_KNOWN = {kind.__name__: kind for kind in FROM_LAUNCHER + FROM_TRAINER}
_SLOTS = 3
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(slots=True)
class _Rank:
    slots: list[int]
    slot_bytes: int
    steps: list[int | None]  # what each slot holds


@dataclass(slots=True)
class Vault:
    """What an agent remembers of a job over its own restart."""

    token: str = "secret"
    generation: int = 0
    restore_step: int | None = None
    ranks: dict[tuple[int, int], _Rank] = field(default_factory=dict)
    saved: dict[int, dict[str, tuple[int, Entry, int]]] = field(default_factory=dict)
    last_entries: dict[tuple[int, int], tuple[Entry, ...]] = field(default_factory=dict)
    progress: list[tuple[int, int]] = field(default_factory=list)

    def close(self) -> None:
        """Free the memory."""
        for rank in self.ranks.values():
            for fd in rank.slots:
                os.close(fd)
        self.ranks.clear()


class TrainerAgent:
    """Serves one job on one node; what the launcher says arrives in ``from_launcher``."""

    def __init__(self, path: Path, vault: Vault) -> None:
        self.vault = vault
        self.from_launcher: queue.Queue[object] = queue.Queue()
        self.output: list[OutputSeen] = []
        # How the launcher's ranks stand: it says that every few seconds.
        self.watched: queue.Queue[RanksWatched] = queue.Queue()
        self.from_trainer: queue.Queue[object] = queue.Queue()
        # What the launcher said last of its standbys: it says that at any time.
        self.standbys = Standbys()
        # What it said that its ranks have loaded.
        self.preload: Preload | None = None
        self.refuse_restore = ""
        self.skip_reason = ""
        self.refuse_reserve = ""
        self.refuse_commit = ""
        # Whether the answer to a commit grants the slot of the next step.
        self.grants_ahead = False
        # What the controller says of a launcher that has just joined.
        self.after_join: object | None = None
        # The first step that is wanted.
        self.planned_from = 0
        # What is heard and never answered.
        self.silent: tuple[type, ...] = ()
        # While it is not set, slots are being made.
        self.slots_made = threading.Event()
        self.slots_made.set()
        # It says meanwhile that it is at it, as an agent does.
        self.slow = False
        self._lock = threading.Lock()
        self._launcher: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen()
        self._begin(self._accept, ())

    def tell_launcher(self, message: object) -> None:
        """Send an order."""
        assert self._launcher is not None
        self._launcher.sendall(encode(message))

    def expect(self, kind: type, timeout_s: float = PATIENCE_S) -> object:
        """Return the launcher's next message, which must be of this type."""
        message = self.from_launcher.get(timeout=timeout_s)
        assert isinstance(message, kind), message
        return message

    def hung(self) -> threading.Lock:
        """Return what, while it is held, keeps every answer to a trainer back."""
        return self._lock

    def hang_up(self) -> None:
        """End all connections."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Go away as a killed agent does."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            self.hang_up()
        for thread in self._threads:
            thread.join(timeout=5)

    def _begin(self, target: object, arguments: tuple[object, ...]) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(connection)
            self._begin(self._serve, (connection,))

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            member: Attach | None = None
            while (message := _receive(connection)) is not None:
                if isinstance(message, FROM_LAUNCHER):
                    self._from_launcher(connection, message)
                    continue
                if isinstance(message, Attach):
                    member = message
                if member is None:
                    return
                self.from_trainer.put(message)
                if isinstance(message, self.silent):
                    continue
                while isinstance(message, Reserve) and self.slow and not self.slots_made.wait(0.2):
                    _sent(connection, Pending(), [])
                with self._lock:
                    answer, fds = self._answer(member, message)
                if answer is not None and not _sent(connection, answer, fds):
                    return

    def _from_launcher(self, connection: socket.socket, message: object) -> None:
        if isinstance(message, Join):
            self._launcher = connection
            accepted = message.token == self.vault.token
            answer = Joined("node-1") if accepted else Refused("this is not the job's token")
            then = b"" if self.after_join is None else encode(self.after_join)
            connection.sendall(encode(answer) + then)
        if isinstance(message, OutputSeen):
            self.output.append(message)
        elif isinstance(message, Standbys):
            self.standbys = message
        elif isinstance(message, Preload):
            self.preload = message
        elif isinstance(message, RanksWatched):
            self.watched.put(message)
        else:
            self.from_launcher.put(message)

    def _answer(self, member: Attach, message: object) -> tuple[object | None, list[int]]:
        match message:
            case Attach():
                return self._attach(message), []
            case Describe(begin=begin):
                return self._describe(begin), []
            case Restore(names, begin):
                return self._restore(names, begin or 0)
            case Reserve(size_bytes):
                return self._give_slots(member, size_bytes)
            case Begin(step=step):
                return self._slot(step), []
            case Commit():
                return self._commit_or_refuse(member, message), []
            case Progress(step=step):
                self.vault.progress.append((member.rank, step))
            case Ready() | _:
                pass
        return None, []

    def _attach(self, message: Attach) -> object:
        if (message.token, message.generation) != (self.vault.token, self.vault.generation):
            return Refused("not of this job's running generation")
        return Attached("node-1", self.vault.restore_step)

    def _slot(self, step: int) -> object:
        if step < self.planned_from:
            return Unplanned(self.planned_from)
        return Skip(self.skip_reason) if self.skip_reason else Slot(0, 1)

    def _give_slots(self, member: Attach, size_bytes: int) -> tuple[object, list[int]]:
        if self.refuse_reserve:
            return Refused(self.refuse_reserve), []
        self.slots_made.wait()
        rank = self._reserve(member, size_bytes)
        return Reserved(_SLOTS, rank.slot_bytes), rank.slots

    def _reserve(self, member: Attach, size_bytes: int) -> _Rank:
        key = (member.generation, member.rank)
        known = self.vault.ranks.get(key)
        if known and known.slot_bytes >= size_bytes:
            return known
        fds = [_slot_memory(size_bytes) for _ in range(_SLOTS)]
        self.vault.ranks[key] = _Rank(fds, size_bytes, [None] * _SLOTS)
        return self.vault.ranks[key]

    def _commit_or_refuse(self, member: Attach, commit: Commit) -> object:
        if self.refuse_commit:
            return Refused(self.refuse_commit)
        committed, step = self._commit(member, commit), commit.step
        ahead = self.grants_ahead and commit.ahead
        return CommittedAhead(step, step + 1, step + 1, 1, step + 2) if ahead else committed

    def _commit(self, member: Attach, commit: Commit) -> object:
        """Copy the slot away, so that this agent needs no rule for reusing slots."""
        rank = self.vault.ranks[member.generation, member.rank]
        data = os.pread(rank.slots[commit.slot], rank.slot_bytes, 0)
        copy = _slot_memory(rank.slot_bytes)
        os.pwrite(copy, data, 0)
        keep = _Rank([copy], rank.slot_bytes, [commit.step])
        self.vault.ranks[-commit.step - 1, member.rank + 1000 * member.generation] = keep
        shards = self.vault.saved.setdefault(commit.step, {})
        key = (member.generation, member.rank)
        entries = self.vault.last_entries[key] if commit.as_before else commit.entries
        self.vault.last_entries[key] = entries
        for entry in entries:
            shards[entry.name] = (copy, entry, rank.slot_bytes)
        return Committed(commit.step)

    def _describe(self, begin: int) -> object:
        step = self.vault.restore_step
        if step is None:
            return NothingToRestore()
        entries = tuple(entry for _, entry, _ in self.vault.saved[step].values())
        # As if two shards filled a message.
        page = sorted(entries, key=lambda entry: entry.name)[begin : begin + 2]
        return DescribedPart(step, tuple(page), len(entries) - begin - len(page))

    def _restore(self, names: tuple[str, ...], begin: int) -> tuple[object, list[int]]:
        step = self.vault.restore_step
        if self.refuse_restore:
            return RestoreFailed(self.refuse_restore), []
        if step is None:
            return NothingToRestore(), []
        found = [self.vault.saved[step][name] for name in names]
        # As if a message had room for two descriptors.
        some = found[begin : begin + 2]
        copies = tuple(RestoredCopy((entry,), size) for _, entry, size in some)
        left = len(found) - begin - len(some)
        return RestoredCopies(step, copies, begin, left), [fd for fd, _, _ in some]


def _slot_memory(size_bytes: int) -> int:
    fd = os.memfd_create("slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(fd, 0, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def _sent(connection: socket.socket, answer: object, fds: list[int]) -> bool:
    try:
        socket.send_fds(connection, [encode(answer)], fds)
    except OSError:
        return False
    return True


def _receive(connection: socket.socket) -> object | None:
    header = _exactly(connection, HEADER_BYTES)
    body = _exactly(connection, body_length(header)) if header else b""
    return decode(body, _KNOWN) if body else None


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        try:
            part = connection.recv(count - len(data))
        except OSError:
            return b""
        if not part:
            return b""
        data += part
    return data
