"""Foundation of a controller: the journal, and what is folded from it and taken up with it."""

import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep_common.clock import boot_ns, stamp_clock
from everstep_controller.assembly.journal_backends import journal_at
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.events import each_event
from everstep_controller.core.model.state import State
from everstep_controller.journal.copy import refuse_unfinished
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.port import JournalBackend, JournalReader
from everstep_controller.journal.reading import JournalReads
from everstep_controller.judging.judge import Judge
from everstep_controller.records.intake import origins_of
from everstep_controller.runtime.cluster_file import Cluster, ClusterFile, ClusterKeeper, cluster_of
from everstep_controller.runtime.fold import CoreFactory, Fold, TakenEvent
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.runtime.stalls import Absence
from everstep_controller.runtime.timeline import ResumedTimeline, resume_timeline
from everstep_controller.standby.following import Followed

_SECRET = "transfer secret"

# What runs as long as the controller does, by name; one that ends is a fault.
NamedTask = tuple[str, Callable[[], Coroutine[Any, Any, None]]]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a start besides the configuration: the core's factory, recovery, judges, clock."""

    core_factory: CoreFactory
    recover_by: str = ""
    # Where the configuration was read from; the cluster file lies beside it, else the journal.
    config_path: Path | None = None
    judges: tuple[Judge, ...] = ()
    wall_ns: Callable[[], int] = time.time_ns
    # Of the machine's boot, and its clock; "": what the kernel says.
    boot_id: str = ""
    boot_ns: Callable[[], int] = boot_ns
    # The journal's place, whose lock the caller has; None: what the configuration names.
    backend: JournalBackend | None = None
    # Of the standby that this process was until now.
    followed: Followed | None = None


@dataclass(frozen=True, slots=True)
class Foundation:
    """The journal, the state that it folds to, and the runtime that takes events from now on."""

    # A connection that only reads, of this thread.
    history: JournalReader
    # What asks the journal while the loop runs.
    reads: JournalReads
    journal: GroupCommit
    # What transfer keys are derived from.
    secret: bytes
    fold: Fold
    timeline: ResumedTimeline
    runtime: Runtime
    cluster: ClusterKeeper
    # Time since a controller with this journal was last alive; None before the first.
    away: Absence | None
    # What replay has decided and a crash kept from being recorded.
    unrecorded: Sequence[TakenEvent]
    # How far each outbox was taken.
    marks: dict[str, int]
    # Lets another controller have the journal, once nothing is written any more.
    give_back: Callable[[], None]

    def state(self) -> State:
        """Return the core's state: read it, never change it."""
        return self.fold.state


def open_foundation(config: ControllerConfig, options: Options) -> Foundation:
    """Open the journal and fold it. Raises what its backend does, UnreadableError, ConfigError."""
    backend = options.backend or journal_at(config.journal, config.journal_password_file)
    history, secret = _open(backend)
    recorded = history.last_decision()
    fold, replayed = _folded(options, history)
    file = ClusterFile(config.cluster_file_beside(options.config_path))
    known = Cluster(fold.state.cluster_id, fold.state.term)
    cluster = cluster_of(known, file.read(), recovering=bool(options.recover_by))
    boot_id = options.boot_id or stamp_clock()().boot_id
    followed_ns = options.followed.offset_ns if options.followed is not None else None
    timeline = resume_timeline(
        history, fold.state, boot_id, options.wall_ns, options.boot_ns, followed_ns
    )
    runtime = Runtime(fold, timeline.clock)
    return Foundation(
        history=history,
        reads=JournalReads(history.another_reader),
        journal=GroupCommit(backend.open_writer, runtime),
        secret=secret,
        fold=fold,
        timeline=timeline,
        runtime=runtime,
        cluster=ClusterKeeper(file, cluster),
        away=timeline.time_away(history),
        unrecorded=[taken for taken in replayed if taken.seq > recorded],
        marks=_marks(history, replayed),
        give_back=backend.give_back,
    )


def _folded(options: Options, history: JournalReader) -> tuple[Fold, list[TakenEvent]]:
    """Return the state of the whole journal, and what was decided that may not be recorded."""
    followed = options.followed
    if followed is None or followed.fold is None:
        fold = Fold(options.core_factory, history)
        return fold, list(fold.replay())
    fold = followed.fold
    fold.hear_rejections(history.rejections())
    rest = fold.follow(list(history.events(fold.seq)))
    return fold, [*followed.unrecorded, *rest]


def _open(backend: JournalBackend) -> tuple[JournalReader, bytes]:
    """Create or migrate the journal; return a connection that only reads, and its secret.

    Raises what the backend does; nothing of the journal is changed then.
    """
    backend.verify()
    with closing(backend.open_writer()) as store:
        store.verify()
        refuse_unfinished(store)
        secret = store.fact(_SECRET)
        if secret is None:
            secret = secrets.token_bytes(32)
            with store.transaction():
                store.set_fact(_SECRET, secret)
    return backend.open_reader(), secret


def _marks(history: JournalReader, replayed: Iterable[TakenEvent]) -> dict[str, int]:
    """Return how far each outbox was taken: not what came to nothing because the core was halted.

    That is journaled when it happens, but for the last of it if the controller was killed then.
    """
    marks = history.marks()
    for taken in replayed:
        told = each_event(taken.event) if taken.ignored else ()
        for origin in (origin for event in told for origin in origins_of(event)):
            before = origin.sequence - 1
            marks[origin.outbox] = min(marks.get(origin.outbox, before), before)
    return marks
