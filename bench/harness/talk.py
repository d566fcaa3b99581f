"""Talk with a process of a benchmark: lines of words to it, each answered by a line of JSON."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable


class Talk:
    """Process that answers each line with one of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.hear()  # "ready"

    def ask(self, *words: object) -> object:
        """Return the answer to one line."""
        assert self._process.stdin is not None
        try:
            print(*words, file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise self._ended() from error
        return self.hear()

    def seconds(self, *words: object) -> float:
        """Return an answer that is a number."""
        answer = self.ask(*words)
        assert isinstance(answer, float), answer
        return answer

    def hear(self) -> object:
        """Return the next answer. Raises SystemExit when the process has ended."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            # Libraries of the peers print, too.
            with contextlib.suppress(ValueError):
                answer: object = json.loads(line)
                return answer
        raise self._ended()

    def _ended(self) -> SystemExit:
        return SystemExit(f"{self._process.args!r} ended early: {self._process.wait(10)}")


def serve(answer: Callable[[list[str]], object]) -> None:
    """Answer each line of standard input until it ends: the other side of a Talk."""
    print(json.dumps("ready"), flush=True)
    while words := sys.stdin.readline().split():
        print(json.dumps(answer(words)), flush=True)
