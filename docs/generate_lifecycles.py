"""Writes life cycles, their waits, and the order of decisions into docs/architecture.md."""

import argparse
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from everstep_controller.core.dispatch.steps import JOB_STEPS, NODE_STEPS, Step
from everstep_controller.core.jobs import lifecycle as jobs
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.timers import Wait
from everstep_controller.core.nodes import lifecycle as nodes

ARCHITECTURE = Path(__file__).with_name("architecture.md")
_BEGIN = "<!-- The life cycle of a {subject}: written by docs/generate_lifecycles.py. -->\n"
_END = "<!-- The end of the life cycle of a {subject}. -->\n"
_ORDER = "<!-- The order of decisions: written by docs/generate_lifecycles.py. -->\n"
_ORDER_END = "<!-- The end of the order of decisions. -->\n"


class _Transition(Protocol):
    @property
    def to(self) -> Enum:
        """Return the state that is entered."""
        ...

    @property
    def effects(self) -> Iterable[Enum]:
        """Return what is done."""
        ...


_State = TypeVar("_State", bound=Enum)
_Event = TypeVar("_Event", bound=Enum)


def diagram(transitions: Mapping[tuple[_State, _Event], _Transition], last: _State) -> str:
    """Return a table of transitions as a state diagram; equal arrows are drawn once."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), step in transitions.items():
        effects = " ".join(effect.name for effect in step.effects)
        label = f"{event.name} / {effects}" if effects else event.name
        arrows.setdefault((str(state.value), str(step.to.value)), []).append(label)
    first = str(next(iter(type(last))).value)
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [
        f"    {here} --> {there}: {label}"
        for (here, there), labels in arrows.items()
        for label in labels
    ]
    return "\n".join([*lines, f"    {last.value} --> [*]"])


def waits(table: Mapping[_State, Wait]) -> str:
    """Return a table of what each state waits for, and what ends that."""
    lines = [
        "| state | waits for | at most | then | or for ever, because |",
        "|---|---|---|---|---|",
    ]
    for state, wait in table.items():
        if wait.awaits:
            limit = f"`core.{wait.deadline.removesuffix('_ns')}_s`" if wait.deadline else ""
            then = ", ".join(one.name.lower().replace("_", " ") for one in wait.on_deadline)
            lines.append(f"| {state.value} | {wait.awaits} | {limit} | {then} | {wait.endless} |")
    return "\n".join(lines)


def order(steps: Iterable[Step[Any]]) -> str:
    """Return a table of steps, in their order."""
    lines = ["| | step | at this place, because | changes |", "|---|---|---|---|"]
    for number, step in enumerate(steps, 1):
        changes = ", ".join(f"`{one}`" for one in step.changes)
        lines.append(f"| {number} | `{step.name}` | {step.place} | {changes} |")
    return "\n".join(lines)


def section(subject: str) -> str:
    """Return the section of one subject, with the comments around it."""
    table = waits(nodes.WAITS) if subject == "node" else waits(jobs.WAITS)
    drawn = (
        diagram(nodes.TRANSITIONS, NodeState.RETIRED)
        if subject == "node"
        else diagram(jobs.TRANSITIONS, JobState.ENDED)
    )
    begin, end = _BEGIN.format(subject=subject), _END.format(subject=subject)
    return f"{begin}```mermaid\n{drawn}\n```\n\n{table}\n\n{end}"


def order_section() -> str:
    """Return the section of the order of decisions, with the comments around it."""
    tables = f"**A node:**\n\n{order(NODE_STEPS)}\n\n**A job:**\n\n{order(JOB_STEPS)}\n\n"
    return f"{_ORDER}{tables}{_ORDER_END}"


def with_lifecycles(page: str) -> str:
    """Return the page with all sections as the tables are now. Raises ValueError without them."""
    for subject in ("node", "job"):
        ends = _BEGIN.format(subject=subject), _END.format(subject=subject)
        page = _replaced(page, *ends, section(subject))
    return _replaced(page, _ORDER, _ORDER_END, order_section())


def _replaced(page: str, begin: str, end: str, by: str) -> str:
    at, until = page.index(begin), page.index(end) + len(end)
    return page[:at] + by + page[until:]


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    page = ARCHITECTURE.read_text(encoding="utf-8")
    ARCHITECTURE.write_text(with_lifecycles(page), encoding="utf-8")


if __name__ == "__main__":
    main()
