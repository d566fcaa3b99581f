"""What the agent knows of a job and must still know after its own restart, and who may join it."""

import hashlib
import hmac
import json
import logging
import sqlite3
from dataclasses import dataclass, field

from everstep_agent.jobs.alone_rules import OwnFacts
from everstep_agent.jobs.processes import ProcessIdentity
from everstep_agent.jobs.ranges import job_problem, number_problem
from everstep_agent.vault.cadence import Cadence
from everstep_agent.vault.forecast import Forecast
from everstep_agent.vault.rows import write
from everstep_common import job_limits
from everstep_common.codec import CodecError, from_json, to_json
from everstep_common.reports import Phase
from everstep_common.trainer_messages import Attach, Join, Storage
from everstep_common.version import TRAINER_PROTOCOL
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)
# This version of the trainer protocol and the three before it are taken: what they say is taken
# in the same way, and they are answered with what they know.
_PROTOCOLS = range(TRAINER_PROTOCOL - 3, TRAINER_PROTOCOL + 1)


@dataclass(slots=True)
class JobFacts:
    """One job on this node. ``start`` and ``directive`` are the controller's words, encoded."""

    job: str
    # Of the launcher that may come back; -1 when whoever comes is checked by the controller alone.
    uid: int = -1
    # Whose snapshots are here, also when no launcher is.
    owner: int = -1
    token_sha256: str = ""
    start: bytes = b""
    directive: bytes = b""
    # Stop was ordered up to this generation, and answered up to that one.
    stop_ordered: int = 0
    stopped: int = 0
    phases: tuple[Phase, ...] = ()
    free_port: int = 0
    launcher: ProcessIdentity | None = None
    processes: tuple[ProcessIdentity, ...] = ()
    # Killed, but held in the kernel: ranks of which that is known here, and all as the launcher
    # named them when it stopped its newest generation.
    held: tuple[ProcessIdentity, ...] = ()
    abandoned: tuple[int, ...] = ()
    # The controller said that it is over here.
    ended: bool = False
    succeeded: bool = False
    # All went well, and the last step is in no storage.
    unsaved: bool = False
    # It has ended, and a launcher came under its name since: generations may begin again.
    past: bool = False
    # Token of whoever made the snapshots that are here, also when no launcher is.
    owner_token_sha256: str = ""
    # It has ended, and the next job of its name goes on from what is here.
    wanted: bool = False
    transfer_key: bytes = b""
    # Where the launcher wants its steps, and with which rights its files are opened there.
    storage: Storage | None = None
    gid: int = -1
    groups: tuple[int, ...] = ()
    umask: int = 0o077
    # Which steps the controller wants, with the rules that ranks behind the newest one follow.
    cadence: Cadence = field(default_factory=Cadence)
    # Which job of the name its launcher is of, and why that one has ended, once it has.
    job_id: int = 0
    end_reason: str = ""
    # What is done in the controller's place while it is away.
    own: OwnFacts = field(default_factory=OwnFacts)
    # What its launcher was told will be there for the ranks of its first generation here.
    promised: Forecast | None = None

    @property
    def plan(self) -> fleet_pb2.StartGeneration:
        """Return the newest plan; generation 0 when there was none."""
        return fleet_pb2.StartGeneration.FromString(self.start)

    @property
    def leaves_state(self) -> bool:
        """Whether its memory is kept after its end, for a while or for the next job of its name."""
        return not self.succeeded or self.unsaved


def token_hash(token: str) -> str:
    """Return what is kept and sent of a job token."""
    return hashlib.sha256(token.encode()).hexdigest()


def join_refusal(facts: JobFacts | None, request: Join, uid: int) -> str | None:
    """Return why a launcher may not join, or None; without facts the job is not known here."""
    problem = _protocol_problem(request.protocol, request.version)
    problem = problem or job_problem(request.job) or number_problem(request)
    problem = problem or _limits_problem(request)
    if problem:
        return problem
    if not request.token:
        return "a job needs a name and a token; see everstep run --help"
    return _owner_refusal(facts, request, uid) if facts and not facts.ended else None


def _limits_problem(request: Join) -> str | None:
    problem = job_limits.size_problem(
        request.nodes_min, request.nodes_max, request.processes_per_node, request.replica_nodes
    )
    if problem is None and request.storage is not None:
        problem = job_limits.storage_problem(request.storage.path)
    return problem


def _owner_refusal(facts: JobFacts, request: Join, uid: int) -> str | None:
    owner = facts.uid
    if owner == -1 and (facts.start or facts.directive):
        # Its launcher is gone from here, its snapshots are not.
        owner = facts.owner
    if owner not in (-1, uid):
        return (
            f"job {request.job} on this node belongs to another user; "
            "choose another name with --job"
        )
    if facts.uid == -1 or hmac.compare_digest(facts.token_sha256, token_hash(request.token)):
        return None
    return (
        f"job {request.job} on this node was begun with another token; give every launcher "
        "of the job the same token, or choose another name with --job"
    )


def goes_on(facts: JobFacts, request: Join, uid: int) -> bool:
    """Return whether a launcher's job may go on from what is kept here of the one before it."""
    ours = hmac.compare_digest(facts.owner_token_sha256, token_hash(request.token))
    return facts.ended and facts.leaves_state and not request.fresh and ours and facts.owner == uid


def attach_refusal(facts: JobFacts | None, request: Attach, uid: int) -> str | None:
    """Return why a process may not attach, or None."""
    problem = _protocol_problem(request.protocol, request.version) or number_problem(request)
    if problem:
        return problem
    if facts is None or facts.ended or not facts.token_sha256:
        return f"job {request.job} is not known on this node; start it with everstep run"
    token = hmac.compare_digest(facts.token_sha256, token_hash(request.token))
    if facts.uid != uid or not token:
        return (
            f"this process does not belong to job {request.job}: user or token differ; "
            "start it with everstep run"
        )
    return _plan_refusal(facts, request)


def _plan_refusal(facts: JobFacts, request: Attach) -> str | None:
    plan = facts.plan
    if request.generation != plan.generation or request.generation <= facts.stopped:
        return (
            f"generation {request.generation} of job {request.job} is over here (newest: "
            f"{max(plan.generation, facts.stopped)}); this process should exit"
        )
    if not plan.first_rank <= request.rank < plan.first_rank + plan.processes:
        return (
            f"rank {request.rank} is not planned on this node in generation {plan.generation}; "
            "take RANK from the environment that everstep run sets"
        )
    return None


def _protocol_problem(protocol: int, version: str) -> str | None:
    if protocol in _PROTOCOLS:
        return None
    return (
        f"everstep {version:.40} speaks protocol {protocol}, this agent {_PROTOCOLS.start} to "
        f"{TRAINER_PROTOCOL}; install a matching everstep in the job's environment"
    )


class JobStore:
    """Facts of all jobs, in SQLite in the runtime folder: there until the next boot."""

    _SCHEMA = (
        "CREATE TABLE IF NOT EXISTS job (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
        "CREATE TABLE IF NOT EXISTS agent (incarnation INTEGER NOT NULL) STRICT",
    )

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        for statement in self._SCHEMA:
            self._db.execute(statement)

    def next_incarnation(self) -> int:
        """Return how often an agent has begun with this store."""
        (count,) = self._db.execute(
            "SELECT coalesce(max(incarnation), 0) + 1 FROM agent"
        ).fetchone()
        self._db.execute("DELETE FROM agent")
        self._db.execute("INSERT INTO agent VALUES (?)", (count,))
        return int(count)

    def save(self, facts: JobFacts) -> None:
        """Keep the facts of a job."""
        body = json.dumps(to_json(facts), separators=(",", ":"))
        write(self._db, "INSERT OR REPLACE INTO job VALUES (?, ?)", (facts.job, body))

    def forget(self, job: str) -> None:
        """Forget a job."""
        write(self._db, "DELETE FROM job WHERE name = ?", (job,))

    def load(self) -> list[JobFacts]:
        """Return all jobs; a row that cannot be read is dropped with a warning."""
        found = []
        for name, body in self._db.execute("SELECT name, body FROM job").fetchall():
            try:
                facts = from_json(JobFacts, json.loads(body))
                if facts.owner == -1:  # written by an agent that did not tell them apart
                    facts.owner = facts.uid
                found.append(facts)
            except (CodecError, ValueError) as error:
                logger.warning("what was known of job %s cannot be read: %s", name, error)
                self.forget(name)
        return found


def open_database(path: str) -> sqlite3.Connection:
    """Open the runtime database. It need not survive a power failure, so nothing is synced."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    # A checkpoint of SQLite's own 1000 pages holds the event loop for 3 ms, of so many less than 1.
    database.execute("PRAGMA wal_autocheckpoint = 250")
    return database
