"""Known software faults: published hangs of libraries, and the release that mends each. Pure.

A row is here only with a source that names the release. It is told instead of a culprit where all
ranks that told their libraries have a version with the fault mapped, and the hang looks like it:
no node is at fault then, and none is isolated.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.verdict import HangClass

# Raised with every change of the table: a verdict can be told from that of another release.
TABLE_VERSION = 1
_NUMBERS = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A published fault that makes jobs stand still."""

    library: str
    # First version that has it ("" for all older ones), and the first that has not.
    since: str
    mended: str
    # What the hang looks like.
    kinds: frozenset[HangClass]
    sentence: str
    source: str
    # Other libraries that must be mapped, in any version or in the one that is named.
    needs: tuple[tuple[str, str], ...] = ()
    # A frame that the native stack of a rank must show; "" where none needs to.
    frame: str = ""


_STUCK = frozenset({HangClass.FABRIC, HangClass.GPU_SIDE})

TABLE: tuple[KnownFault, ...] = (
    KnownFault(
        library="nccl",
        since="",
        mended="2.29.3",
        kinds=_STUCK | {HangClass.CPU_SIDE, HangClass.GIL_HELD},
        sentence="on ARM it loses slots of its proxy, until a rank waits in the launch for ever",
        source="https://github.com/NVIDIA/nccl/releases/tag/v2.29.3-1",
        needs=(("machine", "aarch64"),),
        frame="ncclLocalOpAppend",
    ),
    KnownFault(
        library="nccl",
        since="",
        mended="2.29.3",
        kinds=frozenset({HangClass.FABRIC}),
        sentence="on ARM it loses slots of its proxy, until no rank's collective completes",
        source="https://github.com/NVIDIA/nccl/releases/tag/v2.29.3-1",
        needs=(("machine", "aarch64"),),
    ),
    KnownFault(
        library="nccl",
        since="2.25.1",
        mended="2.26.2",
        kinds=_STUCK | {HangClass.CPU_SIDE, HangClass.GIL_HELD},
        sentence="the abort of a communicator never returns",
        source="https://github.com/pytorch/pytorch/pull/149546",
        frame="ncclCommAbort",
    ),
)


def known_fault(kind: HangClass, reports: Iterable[RankHangReport]) -> KnownFault | None:
    """Return the published fault that a hang of this kind is, if it is one."""
    told = [report for report in reports if report.libraries]
    mapped = [dict(_versions(report)) for report in told]
    frames = [frame for report in told for frame in report.process.native_stack]
    return next((one for one in TABLE if kind in one.kinds and _fits(one, mapped, frames)), None)


def _versions(report: RankHangReport) -> Iterable[tuple[str, str]]:
    return ((library.name, library.version) for library in report.libraries)


def _fits(fault: KnownFault, mapped: Sequence[Mapping[str, str]], frames: Sequence[str]) -> bool:
    if not mapped or not all(_has(fault, libraries) for libraries in mapped):
        return False
    return not fault.frame or any(fault.frame in frame for frame in frames)


def _has(fault: KnownFault, libraries: Mapping[str, str]) -> bool:
    version = numbers(libraries.get(fault.library, ""))
    if not version or not numbers(fault.since) <= version < numbers(fault.mended):
        return False
    return all(
        name in libraries and wanted in ("", libraries[name]) for name, wanted in fault.needs
    )


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers: (2, 27, 3) of "2.27.3" or "2.27.3+cuda12.9"."""
    return tuple(map(int, _NUMBERS.findall(version.partition("+")[0])[:4]))


def sentence_of(fault: KnownFault, reports: Iterable[RankHangReport]) -> str:
    """Return what the fault is, and what to install, in words."""
    found = (dict(_versions(report)).get(fault.library) for report in reports)
    version = next((one for one in found if one), "")
    return (
        f"this is a known fault of {fault.library} {version}: {fault.sentence}. "
        f"{fault.library} {fault.mended} mends it ({fault.source}). No node is at fault"
    )
