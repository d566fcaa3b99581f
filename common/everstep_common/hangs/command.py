"""``everstep hang``: who holds a job back, from a folder of Flight Recorder dumps."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from everstep_common.codec import json_text
from everstep_common.hangs.dumps.folder import Folder, FolderError, read_folder
from everstep_common.hangs.judging.explanation import confidence_words, kind_words, together
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.verdict import GroupState, HangClass, HangVerdict
from everstep_common.printable import printable
from everstep_common.quantities import RANKS_MAX

_NAMED, _NOT_NAMED, _USAGE = 0, 1, 2
_NAMES_TOLD = 4
_ROWS_MAX = 12

# What an engineer does next, by what was found.
_NEXT: Mapping[HangClass, str] = MappingProxyType(
    {
        HangClass.DEAD: "how it ended: its last output, and its node's kernel log (OOM, Xid)",
        HangClass.STORAGE: "the file system: df FOLDER, the server's log, 'dmesg' of the node",
        HangClass.FROZEN: "who stopped it, or what the kernel waits for: cat /proc/PID/wchan",
        HangClass.GIL_HELD: "which thread holds it: py-spy dump --native --pid PID on its node",
        HangClass.CPU_SIDE: "where it is: py-spy dump --pid PID on its node",
        HangClass.GPU_SIDE: "Xids and health of its GPU (dmesg, nvidia-smi); run without its node",
        HangClass.SILENT: "whether its process lives, and its node answers",
        HangClass.FABRIC: "links, switches and GPUs of these ranks: Xids, NVLink and port counters",
        HangClass.DESYNC: "what the program does otherwise there; another node does not help",
        HangClass.KNOWN_SOFTWARE: "the release that the sentence names",
        HangClass.UNKNOWN: "the dumps that are missing, and stacks: py-spy dump --pid PID",
        HangClass.NO_WAIT: "stacks of all ranks: py-spy dump --pid PID",
    }
)

USAGE_LINES = """\
everstep hang [--prefix PREFIX] [--world-size N] [--json] FOLDER
       everstep hang --job NAME [--out FOLDER] [--json]"""

_DESCRIPTION = """\
Tells who holds a training job back that hangs: which ranks, how, and the chain of waiting that
shows it. Reads the dumps of torch's Flight Recorder in FOLDER, one file for each rank; needs no
agent, no controller, no torch, no GPU, and runs nothing that a dump says."""

_EPILOG = """\
How to get the dumps:
  NCCL   set before the job starts
           TORCH_FR_BUFFER_SIZE=2000           (older: TORCH_NCCL_TRACE_BUFFER_SIZE)
           TORCH_NCCL_DUMP_ON_TIMEOUT=1
           TORCH_FR_DUMP_TEMP_FILE=/shared/hang/rank_
                                   (older: TORCH_NCCL_DEBUG_INFO_TEMP_FILE)
         and each rank writes /shared/hang/rank_N when a collective times out.
  gloo   in each rank, from a thread:
           open(f"/shared/hang/rank_{rank}", "wb").write(
               torch._C._distributed_c10d._dump_fr_trace())
  any    from torch's worker server: POST /handler/dump_nccl_trace_json, or for other
         backends than NCCL /handler/fr_trace_json, kept as rank_N.json

Dumps may be pickle or JSON, and some may be missing: a rank without one is evidence too.

What it finds:
  CPU side        it lives, and has not come to the operation the others wait in
  GPU side        it enqueued what the others have completed, and its GPU has not
  told nothing    it left no dump, and the wait of the others leads to it
  fabric          all have enqueued the operation, and nobody completes it
  software desync the ranks call different operations: no node is at fault
  known software  a published fault of a library, with the release that mends it

Exit code: 0 the cause is named, 1 no rank waits or what there is does not tell for whom, 2 usage or
no dump that can be read, or no rank of the job on this node.

Of a job under 'everstep run' no dumps are needed: 'everstep hang --job NAME' looks at its ranks on
this node: its process, whether it holds the GIL, the collectives that it waits in, its Python
stack. It reads, and changes nothing. With --out FOLDER it writes a report of each rank into a
folder, which this command reads, and ends with 0.

Examples:
  everstep hang /shared/hang
  everstep hang /shared/hang --world-size 64      the dumps of the last ranks are missing
  everstep hang /shared/hang --prefix rank_       other files are in the folder as well
  everstep hang /shared/hang --json | jq .culprits
  everstep hang --job llama                       its ranks on this node, without dumps"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = parser_of_folder()
    options, unknown = parser.parse_known_args(arguments)
    if options.out:
        parser.error("--out goes with --job: everstep hang --job NAME --out FOLDER")
    if unknown or options.job:
        parser.error(_not_understood(unknown or ["--job, abbreviated"]))
    if not options.folder:
        parser.error(
            "name the folder of the dumps: everstep hang FOLDER; of a job that runs under 'everstep"
            " run' on this node none are needed: everstep hang --job NAME"
        )
    try:
        folder = read_folder(Path(options.folder), options.prefix, options.world_size)
    except FolderError as error:
        print(f"everstep hang: {printable(str(error))}", file=sys.stderr)
        return _USAGE
    verdict = judge(folder.reports.values(), folder.world_size)
    lines = [json_text(verdict)] if options.json else told(verdict, folder)
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # "everstep hang FOLDER | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code(verdict)


def exit_code(verdict: HangVerdict) -> int:
    """Return with what the command ends that has told a verdict."""
    return _NAMED if _is_named(verdict) else _NOT_NAMED


def _is_named(verdict: HangVerdict) -> bool:
    """Return whether the cause is known: of ranks that told nothing only if it is said which."""
    if verdict.kind is HangClass.SILENT:
        return bool(verdict.culprits)
    return verdict.kind not in (HangClass.NO_WAIT, HangClass.UNKNOWN)


def _not_understood(words: Sequence[str]) -> str:
    told = f"not understood: {' '.join(words)}"
    if any(word.startswith("-") for word in words):
        return f"{told}; 'everstep hang --help' lists the options"
    return f"{told}; one folder has the dumps of all ranks of one job"


def parser_of_folder() -> argparse.ArgumentParser:
    """Return what reads the command line; its help is that of both ways to use the command."""
    parser = argparse.ArgumentParser(
        prog="everstep hang",
        usage=USAGE_LINES,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="the folder of the dumps")
    parser.add_argument("--prefix", default="", help="read only files whose names begin with this")
    parser.add_argument(
        "--world-size",
        type=_size,
        default=0,
        metavar="N",
        help="how many ranks the job has; by default what the dumps tell",
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as one line of JSON")
    # Read by the program that looks at ranks; here they are only told.
    parser.add_argument("--job", metavar="NAME", help="look at this job's ranks on this node")
    parser.add_argument("--out", metavar="FOLDER", help="with --job: write a file for each rank")
    return parser


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= RANKS_MAX:
        raise argparse.ArgumentTypeError(f"expected a number of ranks, got {text!r}")
    return int(text)


def told(verdict: HangVerdict, folder: Folder) -> list[str]:
    """Return a verdict in lines for a terminal."""
    return [
        f"{verdict.sentence}.",
        f"  class       {kind_words(verdict.kind)}",
        f"  confidence  {confidence_words(verdict.confidence)}",
        f"  dumps       {verdict.told} of {verdict.world_size} ranks, {folder.files} files",
        f"  next        {_NEXT[verdict.kind]}",
        *_culprits(verdict),
        *_chain(verdict),
        *_groups(verdict),
        *_beside(verdict),
        *_blind(verdict),
        *_left_out(folder),
    ]


def _culprits(verdict: HangVerdict) -> Iterator[str]:
    if len({one.reason for one in verdict.culprits}) > 1:
        yield ""
        for one in verdict.culprits:
            yield f"rank {one.rank}  {kind_words(one.kind)}: {one.reason}"


def _chain(verdict: HangVerdict) -> Iterator[str]:
    if not verdict.chain:
        return
    yield "\nThe chain of waiting, the culprits last:"
    yield from (f"  {step}" for step in verdict.chain)


def _groups(verdict: HangVerdict) -> Iterator[str]:
    if not verdict.groups:
        return
    yield "\nProcess groups in which ranks wait:"
    same: dict[tuple[str, str, bool], list[GroupState]] = {}
    for one in verdict.groups:
        same.setdefault((one.group, one.operation, bool(one.behind)), []).append(one)
    rows = [("GROUP", "MEMBERS", "OPERATION", "WAITING", "BEHIND", "UNKNOWN")]
    rows += [_row(found) for found in same.values()][:_ROWS_MAX]
    yield from _table(rows)
    if len(same) > _ROWS_MAX:
        yield f"  and {len(same) - _ROWS_MAX} more"


def _row(groups: Sequence[GroupState]) -> tuple[str, str, str, str, str, str]:
    """Return the row of a group, or of several with one description that wait in the same."""
    first = groups[0]
    if len(groups) == 1:
        members = first.members
        told = [first.waiting, first.behind, first.unknown]
    else:
        members = f"{len(groups)} groups"
        told = [
            together([one.waiting for one in groups]),
            together([one.behind for one in groups]),
            together([one.unknown for one in groups]),
        ]
    waiting, behind, unknown = map(_ranks, told)
    return first.group, members, first.operation, waiting, behind, unknown


def _ranks(text: str) -> str:
    """Return which ranks a cell names: a bare number would read as how many."""
    word = "rank" if text.isdigit() else "ranks"
    return f"{word} {text}" if text else "-"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _beside(verdict: HangVerdict) -> Iterable[str]:
    if not verdict.ras:
        return []
    return ["\nWhat NCCL tells beside it:", *(f"  {line}" for line in verdict.ras)]


def _blind(verdict: HangVerdict) -> Iterable[str]:
    if not verdict.blind:
        return []
    return ["\nWhat could not be seen:", *(f"  {line}" for line in verdict.blind)]


def _left_out(folder: Folder) -> Iterable[str]:
    if folder.of_other_hangs:
        yield "\nLeft out, for they are of another hang (--prefix tells the dumps of two apart):"
        yield from (f"  {printable(one)[:300]}" for one in folder.of_other_hangs[:_NAMES_TOLD])
        if (more := len(folder.of_other_hangs) - _NAMES_TOLD) > 0:
            yield f"  and {more} more"
    if not folder.left_out:
        return
    names = ", ".join(printable(name)[:80] for name in folder.left_out[:_NAMES_TOLD])
    more = len(folder.left_out) - _NAMES_TOLD
    others = f" and {more} more" if more > 0 else ""
    yield (
        f"\nLeft out, for the job has {folder.world_size} ranks: {names}{others}"
        " (if it has more: --world-size)"
    )
