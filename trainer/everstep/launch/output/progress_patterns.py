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
    # tqdm, with and without a title, as Hugging Face, Lightning and people draw it:
    # "train:  12%|█▏        | 12/100 [00:01<00:09,  9.0it/s, loss=2.1]"
    re.compile(
        r"^(?P<title>[^|]{0,80}?):?\s*\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+)"
        r" \[(?P<timing>[^\]]*?)(?:(?:it|iter|step|batch|batches)/s|s/(?:it|iter|step|batch))"
    ),
)

# "Resuming from step 100", "loaded checkpoint at iteration 100", "saved step 100": which state that
# was, and no step that was made.
_LOADS = re.compile(r"\b(?:resum|restor|reload|load(?:ed|ing)\b|continu)", re.I)
_SAVES = re.compile(r"\b(?:sav(?:ed|ing)|wrote|writing|written)\b", re.I)

# "epoch 3", "Epoch: [3]", "epoch=3/10"; Hugging Face's 1.25 is a share of the data, no number.
_EPOCH = re.compile(
    r"(?<![\w.-])epoch['\"]?\s{0,4}[:=#]?\s{0,4}[\[(]?\s{0,4}(?P<epoch>[0-9]{1,9})(?![\w.])", re.I
)
_EPOCHS_KEPT = 10_000

# What bars of no training step are called: "Loading checkpoint shards", "Validation DataLoader 0".
_NO_TRAINING = re.compile(
    r"\b(?:load|download|fetch|map|filter|tokeni|split|generat|prepar|eval|valid|test|predict"
    r"|sanity|sav|upload|cach|pack|convert|compil|warm|calibrat|read|index)",
    re.I,
)

# A line without any of these words matches none of them, and most lines are such.
_COMMON_WORDS = (b"step", b"iter", b"%|", b"epoch")


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


class EpochCount:
    """Count of the steps of a script whose numbers begin anew in each epoch.

    It outlives the script's processes: one that goes on within an epoch is counted from there.
    """

    def __init__(self) -> None:
        # Of each epoch that was seen, what is added to its numbers.
        self._before: dict[int, int] = {}
        self._newest = -1
        self._apart = 1

    def counted(self, epoch: int | None, step: int, *, is_done: bool = False) -> int:
        """Return a step of an epoch, counted from the first epoch on.

        ``is_done``: the number says how many are done, as a bar's, and not which one.
        """
        if epoch is None:
            return step
        if epoch not in self._before:
            self._begin(epoch, step, is_done)
        counted = self._before[epoch] + step
        if counted > self._newest >= 0:
            self._apart = counted - self._newest
        self._newest = max(self._newest, counted)
        return counted

    def _begin(self, epoch: int, step: int, is_done: bool) -> None:
        earlier = [one for one in self._before if one < epoch]
        before = self._before[max(earlier)] if earlier else 0
        if earlier and before + step <= self._newest:
            # The numbers have begun anew: this is the step after the newest, or none is done yet.
            before = self._newest if is_done else self._newest + self._apart - step
        self._before[epoch] = before
        if len(self._before) > _EPOCHS_KEPT:
            del self._before[min(self._before)]


class BarRounds:
    """Which of the progress bars that a process draws counts its steps, and how often it began.

    A bar within another, such as an evaluation in the middle of training, counts nothing.
    """

    def __init__(self) -> None:
        self._title: str | None = None
        self._total = 0
        self._step = 0
        self._round = 0

    def round_of(self, title: str, step: int, total: int) -> int | None:
        """Return how many bars before this one have counted; None where this one does not."""
        if _NO_TRAINING.search(title):
            return None
        # "Epoch 3" and "Epoch 4" are one bar that begins anew.
        title = re.sub(r"\d+", "", title).strip()
        if self._title is None:
            self._title = title
        elif not self._is_it(title, total):
            if self._step < self._total or total <= self._total:
                return None
            self._title, self._round = title, self._round + 1
        elif step < self._step:
            self._round += 1
        self._step, self._total = step, total
        return self._round

    def _is_it(self, title: str, total: int) -> bool:
        return title == self._title and (bool(title) or total == self._total)


class StepFinder:
    """Finds completed steps in lines; the first pattern that fits is the one that counts."""

    def __init__(
        self, patterns: tuple[re.Pattern[str], ...], epochs: EpochCount | None = None
    ) -> None:
        self._patterns = patterns
        self._common = patterns is COMMON
        self._epochs = epochs or EpochCount()
        self._bars = BarRounds()
        self._epoch: int | None = None
        self._newest = -1
        # Where the script has said that it goes on; and whether a line told a step and no more.
        self._goes_on_at: int | None = None
        self._plain = False

    def find(self, line: bytes) -> int | None:
        """Return the step that a line tells, if it is a newer one than all before."""
        start = line[:_CHARACTERS_MAX]
        lower = start.lower()
        if self._common and not any(word in lower for word in _COMMON_WORDS):
            return None
        text = start.decode(errors="replace")
        if b"epoch" in lower and (told := _EPOCH.search(text)):
            self._epoch = int(told["epoch"])
        for pattern in self._patterns:
            if found := pattern.search(text):
                step = _number(found)
                if self._common and self._is_about_a_state(text[: found.start()], step):
                    return None
                is_bar = self._common and "total" in pattern.groupindex
                if is_bar and not self._counts(found, step):
                    return None
                self._patterns = (pattern,)
                newer = self._newer(step, is_done=is_bar)
                return None if is_bar and _is_begun_only(found, step) else newer
        return None

    def _counts(self, bar: re.Match[str], step: int | None) -> bool:
        """Return whether a progress bar counts steps; one that begins anew is another epoch."""
        told = _EPOCH.search(bar["title"]) is not None
        bar_round = self._bars.round_of(bar["title"], step or 0, int(bar["total"]))
        if bar_round is None:
            return False
        if not told:
            self._epoch = bar_round
        return True

    def _is_about_a_state(self, before: str, step: int | None) -> bool:
        """Return whether a line tells which state was loaded or saved, and no step that was made.

        Before the first step only one such number is taken for where the script goes on; and where
        nothing else is printed, what is saved tells the steps.
        """
        if self._newest < 0 and _LOADS.search(before):
            if self._goes_on_at is None:
                self._goes_on_at = step
            return step == self._goes_on_at
        saves = _SAVES.search(before) is not None
        self._plain = self._plain or not saves
        return saves and self._plain

    def _newer(self, step: int | None, *, is_done: bool) -> int | None:
        if step is None or step >= _STEP_MAX:
            return None
        step = self._epochs.counted(self._epoch, step, is_done=is_done)
        if step <= self._newest:
            return None
        self._newest = step
        return step


def _is_begun_only(bar: re.Match[str], step: int | None) -> bool:
    """Return whether a bar was drawn before its first step: "0/120", or "50/120 [00:00<?, ?it/s]".

    Its number says how many are done: of 120 steps the last is 120.
    """
    return step == 0 or bar["timing"].endswith("?")


def _number(found: re.Match[str]) -> int | None:
    text = found["step"] if "step" in found.re.groupindex else found[1]
    return int(text) if text and text.isascii() and text.isdigit() else None
