"""Views of a job that stands still: its merged stacks, and who was found to hold it back."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from everstep_cli.views import tables
from everstep_common.hangs.judging.explanation import confidence_words, kind_words
from everstep_common.hangs.node_reports import ToldByNodes
from everstep_common.hangs.reports.rank_report import ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict, named_ranks
from everstep_common.hangs.stack_tree import Branch, ranks_text, stack_tree
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2

# States of a process of which a stack alone does not tell.
_TELLING = (ProcessState.STOPPED, ProcessState.UNINTERRUPTIBLE, ProcessState.DEAD)
# Of frames that follow one another without a branch, the outermost say little.
_FRAMES_SHOWN = 6
_KINDS = frozenset(kind.value for kind in HangClass)
# Of culprits, so many tell what it is.
_CULPRITS_SHOWN = 8


def stacks_sheet(
    seen: ToldByNodes, verdict: HangVerdict, goes_on: str = ""
) -> Iterator[RenderableType]:
    """Yield who holds the job back, the merged stacks, and what could not be seen.

    ``goes_on`` says that nobody does, where a second look has seen ranks elsewhere.
    """
    yield from (Text(f"{goes_on}.\n"),) if goes_on else _verdict(verdict)
    for branch in stack_tree(seen.reports):
        yield _tree(branch)
    yield from _telling(seen.reports)
    yield from (Text(f"not seen: {line}", style="yellow") for line in _blind(seen))


def _verdict(verdict: HangVerdict) -> Iterator[Text]:
    if verdict.kind is HangClass.NO_WAIT:
        return
    told = f"{verdict.sentence}. ({confidence_words(verdict.confidence)})"
    yield Text(printable(told), style="bold")
    yield from (Text(f"  {step}") for step in verdict.chain)
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


def hang_sheet(hang: admin_pb2.HangLine) -> Iterator[RenderableType]:
    """Yield who holds a job back that stands still, as the controller has found it."""
    yield tables.section("who holds it back")
    yield tables.facts(
        [
            ("class", kind_words(HangClass(hang.kind)) if hang.kind in _KINDS else hang.kind),
            ("confidence", hang.confidence),
            ("what", printable(hang.sentence)),
            *((_culprit(one), printable(one.reason)) for one in hang.culprits[:_CULPRITS_SHOWN]),
            ("and", _more(len(hang.culprits) - _CULPRITS_SHOWN)),
            ("may be", hang.suspects and named_ranks(printable(hang.suspects))),
            ("looks", f"{hang.looks} in a row found the same, while no rank moved"),
            ("then", printable(hang.plan)),
        ]
    )
    if hang.chain:
        yield "The chain of waiting, the culprits last:"
    yield from (Text(f"  {printable(step)}") for step in hang.chain)
    yield from (Text(f"not seen: {printable(line)}", style="yellow") for line in hang.blind)


def _culprit(one: admin_pb2.HangCulprit) -> str:
    return f"rank {one.rank} on {printable(one.node)}"


def _more(count: int) -> str:
    return f"{count} more ranks (--json has them)" if count > 0 else ""
