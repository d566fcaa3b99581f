"""Kernel line rule: a pattern to look for, and the finding that a line with it stands for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from everstep_agent.detectors.kernel.rules.line import KernelLine, is_the_kernels, pci_address
from everstep_common.judging.condition import BOOT_GRACE_NS
from everstep_common.judging.findings import Finding, FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

EVIDENCE_CHARS = 300
# A group of a site's pattern may take a whole line.
_COMPONENT_CHARS = 200
# An image file that somebody mounted (a container's, a user's), and no disk of the node.
_IMAGE = re.compile(r"loop\d")
_SEVERITIES, _ACTIONS = list(Severity), list(SuggestedAction)


def more_severe(finding: Finding, known: Finding | None) -> Finding:
    """Return the finding that is open under the same key, unless the new one is more severe.

    A storm of different lines about one component is one piece of news.
    """
    return finding if known is None or _rank(finding) > _rank(known) else known


def _rank(finding: Finding) -> tuple[int, int]:
    return _SEVERITIES.index(finding.severity), _ACTIONS.index(finding.suggested_action)


def _is_image(words: Mapping[str, str]) -> bool:
    return _IMAGE.match(words.get("device", "")) is not None


# No slots: the compiled pattern is kept in the rule.
@dataclass(frozen=True, kw_only=True)
class LineRule:
    """Rule for the lines in which ``pattern`` is found, and what they mean.

    ``needle`` is a piece of text that every such line has: looking for it is cheap, and most lines
    of a healthy node have none. ``component`` and ``message`` may name groups of the pattern. A
    rule that ``ends`` a condition is the kernel's own word that it is over.
    """

    name: str
    needle: str
    expression: str
    ignore_case: bool = False
    condition: str
    component: str
    message: str
    severity: Severity = Severity.DEGRADED
    action: SuggestedAction = SuggestedAction.WATCH
    ends: bool = False
    # In the first minutes of a boot, when devices come up: only told.
    usual_at_boot: bool = False
    # The address in the line is that of a port; the device behind it is what has the fault.
    address_is_port: bool = False
    # The kernel writes it of a program, and begins with its name.
    logged_by_program: bool = False
    # A user can have it written as often as wanted, of devices in a namespace of its own: told, and
    # however often it comes, no more than that.
    user_forgeable: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return the compiled expression; most nodes meet few of the rules in a lifetime."""
        return re.compile(self.expression, re.IGNORECASE if self.ignore_case else 0)

    def judge(self, line: KernelLine) -> Judgement | None:
        """Return what the line says, if the pattern is in it."""
        match = self.pattern.search(line.text)
        if match is None or not is_the_kernels(match, logged_by_program=self.logged_by_program):
            return None
        words = {name: text or "" for name, text in match.groupdict().items()}
        if "pci" in words:
            words["pci"] = pci_address(words["pci"])
        component = self.component.format(**words)[:_COMPONENT_CHARS]
        key = FindingKey(component, self.condition)
        evidence = line.text[:EVIDENCE_CHARS]
        if self.ends:
            return Healthy(key, evidence)
        return Faulty(
            Finding(
                component=key.component,
                condition=key.condition,
                severity=self._severity(words, line),
                message=self.message.format(**words),
                evidence=evidence,
                suggested_action=SuggestedAction.WATCH if _is_image(words) else self.action,
                rule=f"kernel line: {self.needle}",
                injected=line.injected,
            )
        )

    def _severity(self, words: Mapping[str, str], line: KernelLine) -> Severity:
        if _is_image(words):
            return Severity.INFO
        coming_up = line.boot_ns is not None and line.boot_ns < BOOT_GRACE_NS
        return Severity.INFO if self.usual_at_boot and coming_up else self.severity


class LineRules:
    """Rules by their needles: of a flood of lines only those with a needle are looked at."""

    def __init__(self, rules: Sequence[LineRule]) -> None:
        self._rules = tuple(rules)
        # Pairs: an attribute of each rule for each line would cost more than the search.
        self._by_needle = tuple((rule.needle, rule) for rule in self._rules)
        self._needles = tuple(dict.fromkeys(rule.needle for rule in rules))

    @property
    def needles(self) -> tuple[str, ...]:
        """Return what the lines have in which a rule may be interested."""
        return self._needles

    def judge(self, line: KernelLine) -> Judgement | None:
        """Return what the first rule says that knows the line."""
        answer = self.answer(line)
        return answer[1] if answer else None

    def answer(self, line: KernelLine) -> tuple[LineRule, Judgement] | None:
        """Return the first rule that knows the line, and what it says."""
        text = line.text
        for needle, rule in self._by_needle:
            if needle in text and (judgement := rule.judge(line)):
                return rule, judgement
        return None

    def __iter__(self) -> Iterator[LineRule]:
        """Return the rules in their order."""
        return iter(self._rules)


class LinePrefilter:
    """Filter for the few lines of many in which one of the needles is."""

    def __init__(self, needles: Iterable[str]) -> None:
        known = tuple(dict.fromkeys(needles))
        # A text with "GPU reset begin" has "GPU reset": who looks for both looks for the shorter.
        self._needles = tuple(
            needle for needle in known if not any(a in needle for a in known if a != needle)
        )

    @property
    def needles(self) -> tuple[str, ...]:
        """Return what it looks for."""
        return self._needles

    def passes(self, text: str) -> bool:
        """Return whether a needle is in the text."""
        return any(needle in text for needle in self._needles)

    def select(self, texts: Sequence[str]) -> list[int]:
        """Return the places of the texts that have a needle.

        All of them are searched as one text first: a search for 210 needles costs a line of a
        flood four microseconds then.
        """
        if len(texts) < 2:
            return [place for place, text in enumerate(texts) if self.passes(text)]
        whole = "\n".join(texts)
        present = [needle for needle in self._needles if needle in whole]
        if not present:
            return []
        return [
            place for place, text in enumerate(texts) if any(needle in text for needle in present)
        ]
