"""Injection memory: what the next agent must know of injections if this one is killed."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from everstep_agent.ipc.processes import ProcessIdentity
from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.judging.findings import FindingKey
from everstep_common.reports import InjectionState

logger = logging.getLogger(__name__)

# How many answers are kept: a drill orders a few, and only unanswered orders are repeated.
_ANSWERS_MAX = 100


@dataclass(frozen=True, slots=True)
class InjectionStatus:
    """The newest word about an injection: where it is, and a sentence."""

    state: InjectionState
    message: str


@dataclass(frozen=True, slots=True)
class Unended:
    """Traces of an injection that an agent leaves behind when it is killed."""

    caused: tuple[FindingKey, ...] = ()
    counters: str = ""
    stopped: tuple[ProcessIdentity, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stored:
    answers: dict[str, InjectionStatus] = field(default_factory=dict)
    unended: dict[str, Unended] = field(default_factory=dict)
    lingering: tuple[FindingKey, ...] = ()


class InjectionMemory:
    """Memory of injections over a restart, kept as one note."""

    def __init__(self, text: str, keep: Callable[[str], None]) -> None:
        stored = _load(text)
        self.answers = stored.answers
        self.unended: Mapping[str, Unended] = stored.unended
        # Findings that were caused by injections that are over; they may still be open.
        self.lingering = stored.lingering
        self._keep = keep

    def note_answer(self, name: str, answer: InjectionStatus) -> None:
        """Remember an answer; one that ends an injection leaves nothing of it."""
        self.answers.pop(name, None)
        self.answers[name] = answer
        while len(self.answers) > _ANSWERS_MAX:
            del self.answers[next(iter(self.answers))]
        self.note_unended({key: one for key, one in self.unended.items() if key != name})

    def note_unended(self, unended: Mapping[str, Unended]) -> None:
        """Remember what is injected now."""
        self.unended = dict(unended)
        stored = _Stored(self.answers, dict(unended), self.lingering)
        self._keep(json_text(stored))


def _load(text: str) -> _Stored:
    try:
        return from_json(_Stored, json.loads(text), "injections")
    except (ValueError, CodecError) as error:
        logger.warning("what the last agent had injected cannot be read: %s", error)
        return _Stored()
