"""Judge: a process of its own judges what thousands of ranks told.

What ranks tell is their job's word, and takes seconds to read: beside the event loop it would stop
that for as long as Python collects its garbage.
``python -m everstep_controller.inspection.judge KIND FILE``; what the judgement needs besides comes
on standard input.
"""

import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from everstep_common.hangs.node_reports import NodeTold
from everstep_common.process_priority import give_way
from everstep_controller.inspection.evidence import read_told

_NICE = 5
# proc_pid_oom_score_adj(5): up to 1000, which is killed first of all.
_OOM_SCORE = 900


def _judge_hang(told: Iterable[NodeTold], _: str) -> str:
    from everstep_controller.inspection.hang_judgement import find

    return find(told)


def _judge_collectives(told: Iterable[NodeTold], besides: str) -> str:
    from everstep_controller.inspection.collective_judgement import find  # with numpy

    return find(told, besides)


# By the kind of judgement.
_FIND: Mapping[str, Callable[[Iterable[NodeTold], str], str]] = {
    "hang": _judge_hang,
    "collectives": _judge_collectives,
}


def let_controller_first() -> None:
    """Let the controller have processors and memory first: what is judged is a job's own word."""
    for refused in give_way(_NICE, _OOM_SCORE):
        print(f"a judge competes with the controller: {refused}", file=sys.stderr)


def main() -> int:
    """Print what ranks told, judged."""
    let_controller_first()
    gc.disable()  # nothing is in a circle, and the process ends soon
    kind, file = sys.argv[1:]
    print(_FIND[kind](read_told(Path(file)), sys.stdin.read()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
