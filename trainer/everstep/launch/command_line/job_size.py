"""Job size and name: from options, from torchrun's, or from Slurm's or Kubernetes' variables."""

import hashlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from everstep.launch.command_line.kubernetes_job import (
    kubernetes_job,
    kubernetes_nodes,
    unknown_size,
)
from everstep.launch.command_line.option_parser import UsageError

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_MAX = 64


def parse_nodes(text: str) -> tuple[int, int]:
    """Return the least and the most nodes that ``4`` or ``3:4`` means. Raises UsageError."""
    matched = re.fullmatch(r"([0-9]{1,6})(?::([0-9]{1,6}))?", text)
    if matched:
        least = int(matched[1])
        most = int(matched[2] or least)
        if 1 <= least <= most:
            return least, most
    raise UsageError(f"--nnodes {text!r}: expected a number or MIN:MAX from 1 up, for example 3:4")


def node_range(
    given: str | None, environ: Mapping[str, str] = os.environ, *, alone: bool = False
) -> tuple[int, int]:
    """Return the least and the most nodes; where none are given, of srun's step or of the pods.

    ``alone``: the job is this node's own. Raises UsageError, also where srun starts several
    launchers on one node, and where a pod of several cannot know how many there are.
    """
    if alone:
        if parse_nodes(given or "1")[0] > 1:
            raise UsageError(
                f"--standalone is a job of this node alone, and --nnodes {given} needs more; leave"
                " out one of the two"
            )
        return 1, 1
    if "SLURM_STEP_ID" not in environ:  # a batch script alone is one launcher on one node
        given = given or kubernetes_nodes(environ)
        if not given and (problem := unknown_size(environ)):
            raise UsageError(problem)
        return parse_nodes(given or "1")
    nodes = environ.get("SLURM_STEP_NUM_NODES", "1")
    tasks = environ.get("SLURM_STEP_NUM_TASKS", nodes)
    if tasks != nodes:
        raise UsageError(
            f"srun starts {tasks} tasks on {nodes} nodes; one launcher a node starts all ranks:"
            " srun --ntasks-per-node=1 everstep run --nproc-per-node …"
        )
    return parse_nodes(given or nodes)


def job_name(
    given: str | None,
    rendezvous: str | None,
    command: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    *,
    alone: bool = False,
) -> str:
    """Return the job's name: given, torchrun's --rdzv-id, Slurm's, its pods', or the script's.

    ``alone``: the job is this node's own, so its name has the node in it. Raises UsageError.
    """
    if given is not None:
        if _JOB_NAME.fullmatch(given):
            return given
        raise UsageError(
            f"--job {given!r}: use up to 64 letters, digits, dots, dashes and underscores"
        )
    if rendezvous and rendezvous != "none":
        return _fitting(rendezvous)
    place = socket.gethostname() if alone else ""
    if number := environ.get("SLURM_JOB_ID"):
        ending = f"{number}-{place}" if place else number
        return _fitting(environ.get("SLURM_JOB_NAME", "slurm"), ending)
    if pods := kubernetes_job(environ):
        return _fitting(pods, place)
    return _fitting(_script_name(command), place)


def is_named(given: str | None, rendezvous: str | None, environ: Mapping[str, str]) -> bool:
    """Return whether somebody has chosen the job's name, rather than the script being called so."""
    chosen = given or (rendezvous and rendezvous != "none") or environ.get("SLURM_JOB_ID")
    return bool(chosen or kubernetes_job(environ))


def program_words(command: Sequence[str], *, named: bool) -> str:
    """Return what a job runs, in words that differ where two launchers start other programs.

    Arguments may differ from node to node; but two scripts of one name, in a job that nobody gave
    one, are two jobs if their arguments are not the same.
    """
    name = _script_name(command)
    if named or len(command) < 2:
        return name
    arguments = _digest("\0".join(command[1:]))
    return f"{name} with other arguments ({arguments})"


def queue_and_account(
    queue: str | None, account: str | None, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Return whose time the job's is: as its user, its environment or Slurm says; "" for nobody's.

    >>> queue_and_account(None, "nlp", {"SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_ACCOUNT": "a"})
    ('gpu', 'nlp')
    """
    return (
        queue or environ.get("EVERSTEP_QUEUE") or environ.get("SLURM_JOB_PARTITION", ""),
        account or environ.get("EVERSTEP_ACCOUNT") or environ.get("SLURM_JOB_ACCOUNT", ""),
    )


def replica_nodes(given: int, nodes: tuple[int, int]) -> int:
    """Return how many nodes hold one copy of the model together. Raises UsageError."""
    if given >= 1 and not any(count % given for count in nodes):
        return given
    raise UsageError(
        f"--nodes-per-replica {given}: both ends of --nnodes must be multiples of it, and it is "
        "at least 1"
    )


def _script_name(command: Sequence[str]) -> str:
    """Return the name of what is started, without folders and ending, as Unicode text."""
    words = [word for word in command if not word.startswith("-")]
    interpreter = words and re.fullmatch(r"(python|pypy)[0-9.]*", PurePath(words[0]).name)
    first = (words[1:] or words)[0] if interpreter else "".join(words[:1])
    return PurePath(first).stem.encode(errors="replace").decode() or "job"


def _fitting(name: str, ending: str = "") -> str:
    """Return a name as near to this one as a job's name can be."""
    end = f"-{_plain(ending)}" if ending else ""
    if any(letter.isalnum() and not letter.isascii() for letter in name):
        end = f"-{_digest(name)}{end}"  # or all names in another alphabet would be the same one
    return (_plain(name).lstrip("._-") or "job")[: _NAME_MAX - len(end)] + end


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
