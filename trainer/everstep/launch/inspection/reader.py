"""Reader program: reads ranks, as their own user: ``reader.py PATH …``.

A question (JSON) comes on standard input; answers go to standard output, a line a rank, as they are
ready. What is not ready at the deadline is left. Run by path with ``python -I -S``; the paths are
where everstep's packages are.
"""

import os
import sys
import threading
import time

# An answer that is ready by then is written in time.
_WRITE_S = 0.15
# Its imports take a tenth of that; beyond it, there was no processor.
_IMPORTS_S = 0.5


def main(paths: list[str]) -> None:
    """Read all ranks of the question at once; end with the deadline, whatever hangs."""
    began_s = time.monotonic()
    sys.path[:0] = paths
    import json

    from everstep.launch.inspection.question import LINE_MAX, Question, RankAsked
    from everstep.launch.inspection.rank_reader import RankReader
    from everstep_common.codec import from_json, json_text

    question = from_json(Question, json.loads(sys.stdin.readline()))
    ends_s = max(began_s, time.monotonic() - _IMPORTS_S) + question.within_s
    read_by_s = ends_s - _WRITE_S
    turn = threading.Lock()

    def read(asked: RankAsked) -> None:
        line = json_text(RankReader(asked, question, read_by_s).read()).encode() + b"\n"
        with turn:
            if len(line) <= LINE_MAX:
                os.write(1, line)

    threads = [
        threading.Thread(target=read, args=(asked,), daemon=True) for asked in question.ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends_s - time.monotonic()))
    # A thread may hang in the kernel: the end of the interpreter would wait for it.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
