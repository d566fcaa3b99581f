"""Drain reasons: what Slurm shows of a claim, and how ours are told from everybody else's. Pure.

A reason ends with a mark, a hash of its text and of the cluster. One that somebody edited has
another text than its mark is of, so it is his; so is that of another cluster of Everstep.
"""

import hashlib
import re
import string

from everstep_controller.core.model.isolation import WantedIsolation

PREFIX = "everstep: "
REASON_MAX = 200
# `sinfo -R` shows the first 20 characters, of which ours are ten.
_CONDITION_MAX = 40
_ADVICE = "; everstep why NODE"
# No quote, backslash or control character: scontrol reads lines, and a line that ends is a command.
# No character that a shell, a pattern of sinfo's or a person's script takes for something else.
_ALLOWED = frozenset(string.ascii_letters + string.digits + " .,:;_+/()@=-")
_SPACES = re.compile(r"\s+")
_QUOTES = re.compile(r"[\"'`\x00-\x1f\x7f]")
_MARKED = re.compile(r"(everstep: [^#]*) #([0-9a-f]{6})(?: : (.*))?", re.DOTALL)
# What slurmctld itself appends to the reason of a node that it withholds already, " : " before it
# (set_node_reason in src/slurmctld/node_mgr.c, 22.05 to 26.05). What else it appends, such as that
# a GPU is missing, is a reason of its own to withhold the node.
_APPENDED = frozenset({"Not responding", "reboot issued", "reboot complete", "reboot timed out"})
NOT_RESPONDING = "Not responding"


def allowed_text(text: str) -> str:
    """Return a text of anybody's in the characters that may stand in a reason, on one line."""
    plain = _SPACES.sub(" ", _QUOTES.sub(" ", text)).strip()
    return "".join(char if char in _ALLOWED else "?" for char in plain)


def drain_reason(wanted: WantedIsolation, cluster_id: str) -> str:
    """Return the reason of a drain: the condition first, the sentence, what to type, the mark."""
    condition = _condition_word(wanted)
    sentence = allowed_text(wanted.reason)
    room = REASON_MAX - len(PREFIX) - len(condition) - len(_ADVICE) - len(" #123456") - 1
    if len(sentence) > room:
        sentence = sentence[: room - 3].rstrip() + "..."
    text = PREFIX + f"{condition} {sentence}".strip() + _ADVICE
    return f"{text} #{_mark(text, cluster_id)}"


def node_note(wanted: WantedIsolation) -> str:
    """Return what a node's comment says of a claim: one word, for programs of the site.

    It has no space: scontrol keeps the quotes of a comment that it reads from a line.
    """
    owners = "+".join(wanted.owners)
    text = allowed_text(f"{PREFIX.strip()}{owners}:{_condition_word(wanted)}")
    return text.replace(" ", "_")[:REASON_MAX]


def is_our_note(text: str) -> bool:
    """Return whether a node's comment may be replaced: ours, or none."""
    return text in ("", "(null)") or text.strip('"').startswith(PREFIX.strip())


def is_ours(reason: str, cluster_id: str) -> bool:
    """Return whether this cluster's controller wrote a reason, and nobody has edited it since."""
    found = _MARKED.fullmatch(reason)
    if found is None or found[2] != _mark(found[1], cluster_id):
        return False
    return all(one in _APPENDED for one in _appended(found))


def own_part(reason: str) -> str:
    """Return one of our reasons without what slurmctld has appended."""
    found = _MARKED.fullmatch(reason)
    return reason if found is None else f"{found[1]} #{found[2]}"


def _appended(found: "re.Match[str]") -> list[str]:
    return found[3].split(" : ") if found[3] else []


def _condition_word(wanted: WantedIsolation) -> str:
    """Return the condition, or what stands for it where no finding is the cause."""
    for word in (wanted.condition, *wanted.owners):
        if allowed := allowed_text(word):
            return allowed[:_CONDITION_MAX].rstrip()
    return "hold"


def _mark(text: str, cluster_id: str) -> str:
    return hashlib.sha256(f"{cluster_id}\0{text}".encode()).hexdigest()[:6]
