"""Generation beginning: makes and reads ``gen-N/began.json``, before the first file of a step."""

from everstep_agent.storage.backends.backend import (
    RivalError,
    StorageBackend,
    UnusableFileError,
)
from everstep_agent.storage.formats.branch import GenerationFolder
from everstep_agent.storage.formats.records import (
    Beginning,
    RecordError,
    encode_beginning,
    open_beginning,
)


def ensure_beginning(backend: StorageBackend, wanted: Beginning) -> None:
    """Have a generation's beginning in storage. Raises RivalError where it is another job's."""
    found = read_generation(backend, wanted.generation)
    if found.beginning is None and not found.problem:
        backend.write_beginning(wanted.generation, encode_beginning(wanted), replaces=False)
        found = read_generation(backend, wanted.generation)  # somebody else may have been quicker
    if found.problem:  # it was damaged since, and the job that runs it knows how it began
        backend.write_beginning(wanted.generation, encode_beginning(wanted), replaces=True)
    elif found.beginning is not None and not found.beginning.is_same_job(wanted):
        raise RivalError(rival_sentence(found.beginning, wanted))


def rival_sentence(found: Beginning, own: Beginning) -> str:
    """Return what to tell a job of which another one has the folder."""
    whose = (
        f"job {found.job_id} of another controller ('everstep run --standalone' starts its own)"
        if found.cluster != own.cluster
        else (f"job {found.job_id}")
    )
    return (
        f"generation {found.generation} of {whose} has taken over: two jobs bring their steps to"
        " one path, and those of this job are not stored any more; end one of them, or start it"
        " with another --persist or --job"
    )


def refuse_rival(backend: StorageBackend, own: Beginning) -> None:
    """Raise RivalError where a newer generation is another job's."""
    newest = max(backend.list_generations(), default=0)
    if newest <= own.generation:
        return
    found = read_generation(backend, newest).beginning
    if found is not None and not found.is_same_job(own):
        raise RivalError(rival_sentence(found, own))


def read_generation(backend: StorageBackend, generation: int) -> GenerationFolder:
    """Return how a generation began, as far as its folder says it. Raises OSError."""
    try:
        content = backend.read_beginning(generation)
        if content is None:
            return GenerationFolder()
        return GenerationFolder(open_beginning(content, generation))
    except (RecordError, UnusableFileError) as error:
        return GenerationFolder(problem=f"began.json cannot be used: {error}")
