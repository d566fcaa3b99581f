"""What an incident keeps to be read later: who died in which order, and what could not be ended."""

from bisect import insort
from dataclasses import replace

from everstep_controller.core.deaths import Death
from everstep_controller.core.events import GenerationStopped
from everstep_controller.core.state import JobRecord
from everstep_controller.core.turn import Turn

# Who died first explains the rest; after so many ranks nobody reads on.
DEATHS_MAX = 8
_NODES_MAX = 8
# Of what a rank said, so many characters are enough to find it in its output again.
_SAID_MAX = 200
# Older incidents keep their sentences and costs only.
_INCIDENTS_MAX = 32
_NAMED_MAX = 8


def died(job: JobRecord, death: Death) -> None:
    """Keep a death in the open incident, if it is one of the first."""
    incident = job.incident
    if incident is None:
        return
    kept = replace(
        death, exception=death.exception[:_SAID_MAX], last_line=death.last_line[:_SAID_MAX]
    )
    insort(incident.deaths, kept, key=_order)
    del incident.deaths[DEATHS_MAX:]
    for old in job.incidents[-_INCIDENTS_MAX - 1 : -_INCIDENTS_MAX]:
        old.deaths.clear()


def stopped(turn: Turn, job: JobRecord, event: GenerationStopped) -> None:
    """Keep which processes of a generation the kernel holds on a node, which nobody waits for."""
    launcher = job.launchers.get(event.origin.node)
    if not event.abandoned or launcher is None or launcher.holds_generation >= event.generation:
        return
    launcher.holds_generation = event.generation
    sentence = _left_behind(event)
    turn.announce(job.name, "ProcessesLeftBehind", f"{job.name}: {sentence}")
    known = job.incident.left_behind if job.incident else []
    # A launcher that comes back says it again.
    if sentence not in known and len(known) < _NODES_MAX:
        known.append(sentence)


def holds(job: JobRecord, node: str) -> bool:
    """Return whether a node holds processes of the generation that the next one follows.

    What they hold, a device or a port, the next ranks there may need.
    """
    launcher = job.launchers.get(node)
    return launcher is not None and 0 < job.generation == launcher.holds_generation


def _left_behind(event: GenerationStopped) -> str:
    listed = ", ".join(map(str, event.abandoned[:_NAMED_MAX]))
    more = " …" if len(event.abandoned) > _NAMED_MAX else ""
    return (
        f"generation {event.generation} on {event.origin.node} was left with processes that were "
        f"killed, but that the kernel holds for a device or a file system: {listed}{more}"
    )


def _order(death: Death) -> tuple[int, int, int]:
    return (death.generation, death.at_ns, death.rank)
