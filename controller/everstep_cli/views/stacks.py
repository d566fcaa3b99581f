"""View of a job's stacks: what its ranks do at this moment, merged, and what could not be seen."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from everstep_common.hangs.explanation import confidence_words
from everstep_common.hangs.judge import judge
from everstep_common.hangs.rank_report import ProcessState, RankHangReport
from everstep_common.hangs.stack_tree import Branch, ranks_text, stack_tree
from everstep_common.hangs.told_by_nodes import ToldByNodes
from everstep_common.hangs.verdict import HangClass, HangVerdict
from everstep_common.printable import printable

# States of a process of which a stack alone does not tell.
_TELLING = (ProcessState.STOPPED, ProcessState.UNINTERRUPTIBLE, ProcessState.DEAD)
# Of frames that follow one another without a branch, the outermost say little.
_FRAMES_SHOWN = 6


def stacks_sheet(seen: ToldByNodes) -> Iterator[RenderableType]:
    """Yield who holds the job back, the merged stacks, and what could not be seen."""
    yield from _verdict(judge(seen.reports, seen.world_size))
    for branch in stack_tree(seen.reports):
        yield _tree(branch)
    yield from _telling(seen.reports)
    yield from (Text(f"not seen: {line}", style="yellow") for line in _blind(seen))


def _verdict(verdict: HangVerdict) -> Iterator[Text]:
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


def _telling(reports: Iterable[RankHangReport]) -> Iterator[Text]:
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


def _blind(seen: ToldByNodes) -> Iterator[str]:
    """Yield each reason once, with the ranks that it holds for."""
    by_reason: dict[str, list[int]] = {}
    for report in seen.reports:
        for one in report.blind:
            said = f"{one.source.value.replace('_', ' ')}: {printable(one.reason)}"
            by_reason.setdefault(said, []).append(report.rank)
    for said, ranks in by_reason.items():
        yield f"{said} ({ranks_text(sorted(ranks))})"
    yield from dict.fromkeys(seen.missing)
