"""Groups of nodes: nodes for which an operator has set something of their own, and who is in which.

A group selects nodes by name, by failure domain and by what schedulers say of them. Which groups a
node is in is looked up in tables that are made once for all groups, whatever their number.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from everstep_common.judging.condition import name_problems
from everstep_common.judging.findings import Mode
from everstep_common.setting import Bounds, setting

_SHARE = Bounds(least=0, most=1)
_NOT_NEGATIVE = Bounds(least=0)
# What stands between the words of a label that has several: a node of two partitions.
_SEPARATOR = ","
_LABEL_MAX = 317  # of Kubernetes: a domain of 253, a slash, a name of 63

# What schedulers say of one node: pairs of key and value.
Labels = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Group of nodes: a table ``[groups.NAME]`` of the configuration file.

    Journaled, so that a replay decides the same; ``nodes`` are single names then.
    """

    nodes: tuple[str, ...] = setting(
        (), help='Its nodes, by lists as Slurm writes them: ["gpu-[0001-0016,0020]", "login-1"].'
    )
    domains: tuple[str, ...] = setting(
        (),
        help="Failure domains, as agents name theirs, whose nodes are in it as well: `row-1` "
        "is also that of a node in `row-1/rack-7`.",
    )
    labels: tuple[str, ...] = setting(
        (),
        help="What a scheduler says of its nodes: `partition=gpu`, `feature=h100`, "
        "`node.kubernetes.io/instance-type=a3`, or a key alone for any value. A node is in the "
        "group by any of these, or by its name or domain.",
    )
    drivers: tuple[str, ...] | None = setting(
        None,
        help="Which drivers are told of its nodes. Not set: all that are configured; []: none. Of "
        "several groups that name some, all are told.",
    )
    cordon: bool | None = setting(
        None,
        help="Whether a driver that can do so cordons its nodes besides marking them (Kubernetes)."
        " Not set: as the driver's own table says.",
    )
    mode: Mode | None = setting(
        None,
        help="How far automation may go for its nodes, in place of core.mode; as there, no "
        "further than a condition is shipped with.",
    )
    observe: tuple[str, ...] = setting(
        (), help="Conditions that are only observed on its nodes, whatever [core] says of them."
    )
    advise: tuple[str, ...] = setting((), help="The same: on which the controller only advises.")
    enforce: tuple[str, ...] = setting((), help="The same: on which the controller acts.")
    enforce_share: float = setting(
        1.0,
        help="A wave: on this share of its nodes automation enforces what may be enforced; the "
        "others are only advised on. Nodes are drawn once for each condition: a larger share has "
        "those of a smaller one, and more.",
        bounds=_SHARE,
    )
    enforce_shares: Mapping[str, float] = setting(
        factory=dict, help="The same for single conditions: {XidFatal = 0.5}."
    )
    isolation_budget_nodes: int | None = setting(
        None,
        unit="nodes",
        help="Working nodes of it that automation may isolate at once, besides the budgets of "
        "[core]. Not set: no budget of its own.",
        bounds=_NOT_NEGATIVE,
    )
    isolations_per_hour_nodes: int | None = setting(
        None,
        unit="nodes",
        help="Working nodes of it that automation may isolate within an hour. Not set: as above.",
        bounds=_NOT_NEGATIVE,
    )

    def listed_mode(self, condition: str) -> Mode | None:
        """Return the mode that it names for a condition; None where it names none."""
        lists = (
            (self.enforce, Mode.ENFORCE),
            (self.advise, Mode.ADVISE),
            (self.observe, Mode.OBSERVE),
        )
        return next((mode for conditions, mode in lists if condition in conditions), None)

    def share_of(self, condition: str) -> float:
        """Return on which share of its nodes a condition is enforced."""
        return self.enforce_shares.get(condition, self.enforce_share)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with its values, one ``key: sentence`` each; not its node lists."""
        if not (self.nodes or self.domains or self.labels):
            yield "nodes: no node is in it; give nodes, domains or labels"
        wrong = [domain for domain in self.domains if not domain.strip("/ ")]
        yield from (f"domains: {domain!r} is no failure domain" for domain in wrong)
        wrong = [problem for problem in map(_label_problem, self.labels) if problem]
        yield from (f"labels: {problem}" for problem in wrong)
        for key in ("observe", "advise", "enforce", "enforce_shares"):
            yield from (f"{key}: {problem}" for problem in name_problems(getattr(self, key)))
        listed = (*self.observe, *self.advise, *self.enforce)
        for name in sorted({name for name in listed if listed.count(name) > 1}):
            yield f"observe: {name} is in more than one of observe, advise, enforce"
        for name, share in self.enforce_shares.items():
            if problem := _SHARE.problem(share):
                yield f"enforce_shares.{name}: {problem}"


def _label_problem(label: str) -> str:
    key, _, value = label.partition("=")
    if not key or key != key.strip() or any(sign in key for sign in (_SEPARATOR, " ", "!", "(")):
        return f"expected key=value, or a key alone, got {label!r}"
    if _SEPARATOR in value or value != value.strip():
        return f"{label!r} has more than one value; give a label for each"
    return f"{label[:20]!r}… is too long" if len(label) > _LABEL_MAX else ""


@dataclass(slots=True)
class GroupTable:
    """All groups, and who is in which: by name, by domain, by labels."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    # Keys of labels that some group selects by: no others are of use.
    label_keys: frozenset[str] = frozenset()
    _by_node: dict[str, list[str]] = field(default_factory=dict)
    _by_domain: dict[str, list[str]] = field(default_factory=dict)
    # By "key" and by "key=value".
    _by_label: dict[str, list[str]] = field(default_factory=dict)
    # By the names of a node's groups, as they were asked for.
    _drivers: dict[tuple[str, ...], frozenset[str] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Mapping[str, Group]) -> Self:
        """Return the table of these groups."""
        keys = {label.partition("=")[0] for group in groups.values() for label in group.labels}
        made = cls(groups, frozenset(keys))
        for name in sorted(groups):
            group = groups[name]
            for node in group.nodes:
                made._by_node.setdefault(node, []).append(name)
            for domain in group.domains:
                made._by_domain.setdefault(domain.strip("/"), []).append(name)
            for label in group.labels:
                made._by_label.setdefault(label, []).append(name)
        return made

    def names_of(self, node: str, domain: str, labels: Labels) -> tuple[str, ...]:
        """Return the names of a node's groups, in order."""
        if not self.groups:
            return ()
        found = {*self._by_node.get(node, ())}
        for path in paths_of(domain) if self._by_domain else ():
            found.update(self._by_domain.get(path, ()))
        for key, value in labels if self._by_label else ():
            found.update(self._by_label.get(key, ()))
            for word in value.split(_SEPARATOR):
                found.update(self._by_label.get(f"{key}={word}", ()))
        return tuple(sorted(found))

    def drivers_of(self, names: tuple[str, ...]) -> frozenset[str] | None:
        """Return which drivers are told of nodes of these groups; None: all that there are."""
        if names not in self._drivers:
            told = [self.groups[name].drivers for name in names]
            named = [drivers for drivers in told if drivers is not None]
            self._drivers[names] = frozenset[str]().union(*named) if named else None
        return self._drivers[names]


def paths_of(domain: str) -> Iterator[str]:
    """Yield a domain and those that it is in: "row-1/rack-7", "row-1"."""
    while domain:
        yield domain
        domain = domain.rpartition("/")[0]
