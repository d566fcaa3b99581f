"""Settings of jobs and their snapshots: the table ``[jobs]`` of the agent's configuration."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.ipc.listeners import is_wildcard
from everstep_agent.ipc.message_memory import MESSAGE_MEMORY_BYTES, MESSAGE_MEMORY_BYTES_MIN
from everstep_agent.vault.memory.pages import HugePages
from everstep_common.config import setting
from everstep_common.setting import Bounds, not_negative, positive


def default_runtime_folder(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Return the folder for what must not outlive a boot: the system's one for root."""
    if (os.geteuid() if uid is None else uid) == 0:
        return Path("/run/everstep-agent")
    base = environ.get("XDG_RUNTIME_DIR")
    if base:
        return Path(base) / "everstep-agent"
    return Path(environ.get("HOME", "/tmp")) / ".local/state/everstep-agent/run"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSettings:
    """Jobs of this node, and the memory that keeps their snapshots."""

    runtime_folder: Path = setting(
        factory=default_runtime_folder,
        shown="/run/everstep-agent for root, else $XDG_RUNTIME_DIR/everstep-agent",
        help="Folder of the socket and of the state of running jobs; should be a tmpfs, "
        "because nothing in it is useful after a boot.",
    )
    socket: Path | None = setting(
        None,
        help="Unix socket for launchers and training processes; without it agent.sock in "
        "runtime_folder.",
    )
    bulk_host: str = setting(
        "127.0.0.1",
        help="Address that receives replicas from other nodes. Loopback by default, because "
        "without bulk_tls they travel unencrypted: choose a network that you trust.",
    )
    bulk_tls: bool = setting(
        False,
        help="Whether replicas travel inside TLS 1.3, with the certificates in [tls]; it must "
        "be the same on every node, because one with it and one without exchange nothing."
        " Off by default: it costs CPU (docs/benchmarks.md), and only prevents reading; "
        "changed bytes are detected without it.",
    )
    bulk_port: int = not_negative(7436, most=65535, help="Port for replicas; 0 picks a free one.")
    bulk_advertise_host: str = setting(
        "", help="Host name under which other nodes reach bulk_port; empty means bulk_host."
    )
    slots_per_rank: int = setting(
        3,
        bounds=Bounds(least=2),
        help="Snapshots of a rank that are kept at once. 3: one recoverable, one being replicated, "
        "one being written; with 2, training waits in each step until the one before is "
        "replicated. Jobs with --persist get one more, for the one that is being stored.",
    )
    report_delay_s: float = not_negative(
        0.02,
        unit="s",
        help="How long a report of new copies waits for more, so that all ranks of the node "
        "share one: they commit together and are verified a few milliseconds apart. Jobs "
        "of more than 1,300 ranks wait longer, up to 0.25 s, as the controller does.",
    )
    slot_wait_s: float = positive(
        5.0,
        unit="s",
        help="How long a snapshot waits for a free slot before the step is skipped and counted; "
        "not at all while the controller, or the agent of another member, is away.",
    )
    slot_wait_max_s: float = positive(
        60.0,
        unit="s",
        help="Longest wait for a free slot that a training process may ask for (wait_s): a "
        "longer one would look like a hang.",
    )
    huge_pages: HugePages = setting(
        HugePages.TRANSPARENT,
        help='Pages of snapshot memory. "transparent": huge ones if '
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled allows it (advise), else ordinary ones. "
        '"explicit": 2 MiB pages of the pool (vm.nr_hugepages) while it has room. "none": ordinary '
        "ones.",
    )
    memory_bytes_max: int = setting(
        0,
        unit="bytes",
        help="Most memory for snapshots and replicas; 0: only memory_reserve_bytes limits it.",
    )
    memory_reserve_bytes: int = setting(
        512 * 1024 * 1024,
        unit="bytes",
        help="Memory that snapshots leave free, so that an agent never causes an out-of-memory"
        " kill of a job.",
    )
    memory_per_user_bytes_max: int = setting(
        0,
        unit="bytes",
        help="Most snapshot memory for the jobs of one user; 0: memory_per_user_max_ratio alone "
        "limits it.",
    )
    memory_per_user_max_ratio: float = positive(
        0.9,
        most=1,
        help="Share of all snapshot memory (memory_bytes_max, or what the node can spare) that the "
        "jobs of one user may have, so that a job of another one can begin; 1: all of it. Less "
        "where more was promised to others (--snapshot-memory), but at least half.",
    )
    connections_per_user_max: int = positive(
        256,
        help="Most connections of one user at once: enough for many jobs of eight ranks and a "
        "launcher, or for three generations of 64 ranks.",
    )
    connections_per_user_per_s: float = not_negative(
        128.0,
        unit="1/s",
        help="Connections that a user may make in a second, for long; four seconds' worth at once. "
        "64 ranks and a launcher that restart twice a second make as many. 0: no limit.",
    )
    jobs_per_user_max: int = positive(
        256, help="Most jobs of one user on this node, those included that ended and keep memory."
    )
    new_jobs_per_user_per_min: float = not_negative(
        240.0,
        unit="1/min",
        help="Jobs that a user may begin on this node in a minute, a third of them at once: 64 "
        "jobs of one rank may be started together, and each again every 16 s. 0: no limit.",
    )
    message_memory_bytes: int = setting(
        MESSAGE_MEMORY_BYTES,
        unit="bytes",
        bounds=Bounds(least=MESSAGE_MEMORY_BYTES_MIN),
        help="Memory for messages above 256 KiB (lists of very many shards): this much for "
        "incoming and as much for outgoing ones. Decoding takes about three times as much"
        " again. A rank whose message finds no room waits; no user gets all but "
        "64 MiB, and no job more than half of that.",
    )
    message_timeout_s: float = positive(
        20.0,
        unit="s",
        help="How long such a message may take to be received or sent, once it has room; 64 "
        "MiB take 0.1 s. Then the connection is closed.",
    )
    worker_threads: int = positive(
        2,
        help="Threads that hash and copy. Two hash 24 GB/s, faster than any network.",
    )
    transfers_max: int = positive(
        64,
        help="Most connections that transfer copies at once, in each direction. Each has a "
        "thread, so that a slow node does not delay others.",
    )
    transfer_streams: int = not_negative(
        0,
        help="Connections of one copy. 0: two, which fill 25 Gbit/s; but one for a replica on a "
        "node with fewer than 8 processors (on 2 of them a second one brought nothing, and cost "
        "half as much CPU again). A third helps on faster networks, with cores to spare.",
    )
    partial_transfer_kept_s: float = positive(
        30.0,
        unit="s",
        help="How long the bytes of an interrupted transfer are kept, so that the next attempt"
        " resumes there, and how long memory of a dropped replica is kept for the next "
        "one.",
    )
    replication_bytes_per_s_max: int = setting(
        0,
        unit="bytes/s",
        help="Limit for all copies together that this node sends; 0: no limit.",
    )
    transfer_timeout_s: float = positive(
        5.0, unit="s", help="How long a transfer may receive no byte before it is aborted."
    )
    restore_bytes_per_s_min: int = not_negative(
        1024 * 1024,
        unit="bytes/s",
        help="In a recovery, a peer slower than this for transfer_timeout_s is used again only"
        " if no other has the copy; at this rate 1 GiB would take a quarter of an hour. "
        "0: wait for every peer.",
    )
    settle_timeout_s: float = positive(
        3.0,
        unit="s",
        help="How long stopping a generation waits for transfers that had begun; a recovery "
        "waits for it, so it is short.",
    )
    stop_patience_s: float = positive(
        5.0,
        unit="s",
        help="How long a launcher may take, besides the grace for its processes, to stop a "
        "generation; then the agent kills the processes, because all other nodes wait for"
        " this one.",
    )
    device_release_timeout_s: float = not_negative(
        15.0,
        unit="s",
        help="How long the memory of NVIDIA GPUs may stay in use after the last process of a "
        "generation is gone, before the next one starts; then the GPU has a finding, and the job "
        "takes another node, if there is one. The driver frees it at once, as a rule. 0: nobody "
        "looks.",
    )
    reconnect_grace_s: float = setting(
        2.0,
        unit="s",
        help="How long a launcher that still runs may be disconnected before it counts as gone.",
    )
    memory_kept_s: float = setting(
        1800.0,
        unit="s",
        help="How long snapshots of a failed or cancelled job are kept in memory, unless "
        "another job needs the room.",
    )

    storage_stall_timeout_s: float = positive(
        60.0,
        unit="s",
        help="How long a write to a job's storage may move no byte before its process is "
        "killed: a shared file system whose server restarts is back within it.",
    )
    storage_list_timeout_s: float = positive(
        10.0,
        unit="s",
        help="Deadline for listing a job's steps in storage; then it is tried again, each time "
        "with twice as long, up to storage_stall_timeout_s. The job waits for it, because without "
        "the list it would start from scratch.",
    )
    storage_unseen_timeout_s: float = positive(
        65.0,
        unit="s",
        help="How long a file that another node has written may stay unseen before its step is "
        "given up: an NFS client believes for up to 60 s (acdirmax) that it is not there.",
    )
    storage_drain_timeout_s: float = positive(
        300.0,
        unit="s",
        help="How long the newest step of a job that ends may take to reach storage; its launcher "
        "waits for it, and its memory is kept.",
    )
    controller_grace_s: float = positive(
        3.0,
        unit="s",
        help="How long the controller must have been away, or halted, before a job whose ranks are "
        "all here is restarted without it. A controller that restarts is back within 2 s, and"
        " then decides.",
    )
    storage_workers: int = positive(
        2,
        help="Files written or read in parallel for a job. Two saturate a disk or a network "
        "link; more would only take memory bandwidth from training.",
    )

    @property
    def socket_path(self) -> Path:
        """Return where launchers and trainers connect."""
        return self.socket or self.runtime_folder / "agent.sock"

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        found = []
        if len(os.fsencode(self.socket_path)) > 107:
            found.append(f"jobs.socket: longer than a Unix socket may be: {self.socket_path}")
        if not self.bulk_advertise_host and is_wildcard(self.bulk_host):
            found.append(
                f"jobs.bulk_advertise_host: needed because bulk_host is {self.bulk_host}, which "
                "names no node"
            )
        return found
