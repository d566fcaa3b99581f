"""Progress patterns: find the steps that an unchanged script prints in its output. Pure."""

import re
from collections.abc import Sequence

# Only the beginning of a line is searched: a line may be a mebibyte long, and a pattern slow.
_CHARACTERS_MAX = 400
_STEP_MAX = 10**15

# What common trainers print, the sure before the likely. None of them matches inside a word.
COMMON: tuple[re.Pattern[str], ...] = (
    # Megatron-LM: "iteration       12/    1000 |"; DeepSpeed and others: "iteration 12", "iter: 12"
    re.compile(r"(?<![\w.-])iter(?:ation)?['\"]?\s*[:=#]?\s*(?P<step>\d+)(?![\w.])", re.I),
    # torchtitan: "step: 12  loss: …"; Hugging Face and Paddle: "global_step: 12", "step 12/100"
    re.compile(r"(?<![\w.-])(?:global[_ ]?)?step['\"]?\s*[:=#]?\s*(?P<step>\d+)(?![\w.])", re.I),
    # tqdm as the Hugging Face Trainer draws it: a bar of steps has no title, and counts "it".
    re.compile(r"^\s*\d+%\|[^|]*\|\s*(?P<step>\d+)/\d+ \[[^\]]*(?:it/s|s/it)"),
    # Lightning: "Epoch 0:  12%|█▏        | 12/100 [00:01<…"; its count starts at 0 in each epoch,
    # so later epochs say nothing new.
    re.compile(r"^Epoch 0:\s+\d+%\|[^|]*\|\s*(?P<step>\d+)/\d+ \["),
)

# A line without any of these words matches none of them, and most lines are such.
_COMMON_WORDS = (b"step", b"iter", b"%|")


class PatternError(Exception):
    """A pattern cannot be used; one sentence with the next step."""


def own_patterns(texts: Sequence[str] | None) -> tuple[re.Pattern[str], ...]:
    """Return the patterns that the user gave, or the common ones. Raises PatternError."""
    if not texts:
        return COMMON
    return tuple(_own(text) for text in texts if text != "none")


def _own(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise PatternError(f"--progress-pattern {text!r}: {error}; correct it") from error
    if not pattern.groups:
        raise PatternError(
            f"--progress-pattern {text!r}: put brackets around the number, for example"
            " 'batch ([0-9]+) done'"
        )
    return pattern


class StepFinder:
    """Finds completed steps in lines; the first pattern that fits is the one that counts."""

    def __init__(self, patterns: tuple[re.Pattern[str], ...]) -> None:
        self._patterns = patterns
        self._words = _COMMON_WORDS if patterns is COMMON else (b"",)
        self._newest = -1

    def find(self, line: bytes) -> int | None:
        """Return the step that a line tells, if it is a newer one than all before."""
        start = line[:_CHARACTERS_MAX]
        lower = start.lower()
        if not any(word in lower for word in self._words):
            return None
        text = start.decode(errors="replace")
        for pattern in self._patterns:
            if found := pattern.search(text):
                self._patterns = (pattern,)
                return self._newer(_number(found))
        return None

    def _newer(self, step: int | None) -> int | None:
        if step is None or not self._newest < step < _STEP_MAX:
            return None
        self._newest = step
        return step


def _number(found: re.Match[str]) -> int | None:
    text = found["step"] if "step" in found.re.groupindex else found[1]
    return int(text) if text and text.isascii() and text.isdigit() else None
