"""View of a job's stacks: what its ranks do at this moment, merged, and what could not be seen."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from everstep_common.codec import CodecError, from_json
from everstep_common.hangs.explanation import confidence_words
from everstep_common.hangs.judge import judge
from everstep_common.hangs.rank_report import ProcessState, RankReport
from everstep_common.hangs.stack_tree import Branch, ranks_text, stack_tree
from everstep_common.hangs.verdict import HangClass, Verdict
from everstep_common.printable import printable
from everstep_common.reports.nodes import RANK_REPORT_TEXT_MAX
from everstep_proto.generated import admin_pb2

# States of a process of which a stack alone does not tell.
_TELLING = (ProcessState.STOPPED, ProcessState.UNINTERRUPTIBLE, ProcessState.DEAD)
# Of frames that follow one another without a branch, the outermost say little.
_FRAMES_SHOWN = 6


@dataclass(slots=True)
class Inspection:
    """What all nodes of a job told; of a rank, only what the node that has it says."""

    reports: list[RankReport] = field(default_factory=list)
    # Sentences for what is missing.
    missing: list[str] = field(default_factory=list)
    world_size: int = 0

    def take(self, node: admin_pb2.NodeInspection) -> None:
        """Take what one node tells."""
        self.world_size += node.ranks
        told: dict[int, RankReport] = {}
        for text in node.reports:
            report = _read(text)
            if report is None or not 0 <= report.rank - node.first_rank < node.ranks:
                self.missing.append(f"{node.node}: a report is left out, it is of no rank there")
            elif report.rank in told:
                self.missing.append(f"{node.node}: rank {report.rank} is reported twice")
            else:
                told[report.rank] = replace(report, node=node.node)
        self.reports += told.values()
        if node.missing:
            self.missing.append(f"{node.node}: {node.missing}")


def _read(text: str) -> RankReport | None:
    if len(text) > RANK_REPORT_TEXT_MAX:
        return None
    try:
        return from_json(RankReport, json.loads(text))
    except (CodecError, ValueError, RecursionError):
        return None


def stacks_sheet(seen: Inspection) -> Iterator[RenderableType]:
    """Yield who holds the job back, the merged stacks, and what could not be seen."""
    yield from _verdict(judge(seen.reports, seen.world_size))
    for branch in stack_tree(seen.reports):
        yield _tree(branch)
    yield from _telling(seen.reports)
    yield from (Text(f"not seen: {line}", style="yellow") for line in _blind(seen))


def _verdict(verdict: Verdict) -> Iterator[Text]:
    if verdict.kind is HangClass.NO_WAIT:
        return
    told = f"{verdict.sentence}. ({confidence_words(verdict.confidence)})"
    yield Text(printable(told), style="bold")
    for step in verdict.chain:
        waits = f"ranks {step.waiting} wait in {step.operation} of {step.group} for {step.awaited}"
        yield Text(f"  {printable(waits)}")
    yield Text("")


def _tree(branch: Branch) -> Tree:
    tree = Tree(_label(branch))
    for below in branch.below:
        tree.add(_tree(below))
    return tree


def _label(branch: Branch) -> Text:
    shown = branch.frames[-_FRAMES_SHOWN:]
    left_out = len(branch.frames) - len(shown)
    frames = [f"… {left_out} more", *shown] if left_out else list(shown)
    lines = "\n".join(map(printable, frames))
    return Text.assemble((ranks_text(branch.ranks), "bold"), "\n", lines)


def _telling(reports: Iterable[RankReport]) -> Iterator[Text]:
    for report in sorted(reports, key=lambda one: one.rank):
        process = report.process
        words = []
        if process.state in _TELLING:
            where = f" in {printable(process.wchan)}" if process.wchan else ""
            words.append(f"{process.state.value}{where} for {process.state_for_ms / 1000:.1f} s")
        if process.gil_held:
            words.append("something holds its GIL")
        if words:
            yield Text(f"rank {report.rank} on {report.node}: {'; '.join(words)}", style="red")


def _blind(seen: Inspection) -> Iterator[str]:
    """Yield each reason once, with the ranks that it holds for."""
    by_reason: dict[str, list[int]] = {}
    for report in seen.reports:
        for one in report.blind:
            said = f"{one.source.value.replace('_', ' ')}: {printable(one.reason)}"
            by_reason.setdefault(said, []).append(report.rank)
    for said, ranks in by_reason.items():
        yield f"{said} ({ranks_text(sorted(ranks))})"
    yield from dict.fromkeys(seen.missing)
