"""Cluster file: the id of the cluster and its newest term, outside the journal.

It lies beside the configuration, so that a controller whose journal was lost, or restored from a
backup, still knows which agents are its own, and that its journal is old.
"""

import logging
import os
import tomllib
import uuid
from dataclasses import dataclass
from pathlib import Path

from everstep_common.config import ConfigError
from everstep_controller.core.model.state import State

logger = logging.getLogger(__name__)

_TEXT = """\
# Made by everstep-controller: keep it with the configuration. A controller whose journal was lost
# or restored knows its agents by it; see "The cluster's identity" in docs/operations.md.
cluster = "{cluster}"
term = {term}
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, and the newest term that a controller of it has begun."""

    id: str
    term: int = 0


class ClusterFile:
    """The file; where it cannot be written the journal has the id all the same.

    It is written in place: the folder of a service's configuration is not the service's to change.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = Cluster("")

    def read(self) -> Cluster | None:
        """Return what is in it; None where it is missing or empty. Raises ConfigError."""
        try:
            text = self._path.read_text(encoding="utf-8")
            told = tomllib.loads(text)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError([f"{self._path}: cannot be read: {error.strerror}"]) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError([self._unreadable(str(error))]) from error
        if not told:
            return None
        cluster, term = told.get("cluster"), told.get("term", 0)
        if not isinstance(cluster, str) or not cluster or not isinstance(term, int):
            raise ConfigError([self._unreadable("expected the keys cluster and term")])
        return Cluster(cluster, term)

    def write(self, cluster: Cluster) -> None:
        """Keep the id and the term, if they are new."""
        if cluster == self._written:
            return
        text = _TEXT.format(cluster=cluster.id, term=cluster.term).encode()
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.pwrite(fd, text, 0)
                os.ftruncate(fd, len(text))
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            logger.warning(
                "%s: cannot be written: %s; if the journal is lost as well, agents have to be told "
                "of the new cluster one by one: make the file, or set cluster_file",
                self._path,
                error.strerror,
            )
        self._written = cluster

    def _unreadable(self, problem: str) -> str:
        return (
            f"{self._path}: {problem}; put back what it was, or delete it: the journal has the id"
        )


class ClusterKeeper:
    """The cluster of this controller; its newest term is written down outside the journal."""

    def __init__(self, file: ClusterFile, cluster: Cluster) -> None:
        self._file = file
        self.cluster = cluster

    def keep(self, state: State) -> None:
        """Write down the cluster and its newest term."""
        self.cluster = Cluster(state.cluster_id, max(state.term, self.cluster.term))
        self._file.write(self.cluster)

    def note_old_journal(self) -> None:
        """Have the next start halt until a recovery, though no newer term was begun."""
        self._file.write(Cluster(self.cluster.id, self.cluster.term + 1))


def cluster_of(journal: Cluster, kept: Cluster | None, *, recovering: bool) -> Cluster:
    """Return the cluster of a controller that starts; a new one where there is none.

    Raises ConfigError when journal and file are of two clusters; a recovery goes by the file.
    """
    if kept is None:
        return Cluster(journal.id or uuid.uuid4().hex, journal.term)
    if journal.id and journal.id != kept.id and not recovering:
        raise ConfigError(
            [
                f"the journal is of cluster {journal.id}, the cluster file of {kept.id}: put back "
                "the one that belongs to the other, or run 'everstep-controller recover', which "
                "takes the journal for an old one of the file's cluster"
            ]
        )
    return kept
