"""View of a job's warm standbys: nodes that have equally many share a line."""

from collections.abc import Iterable

from everstep_cli.views import words
from everstep_proto.generated import admin_pb2


def standby_facts(lines: Iterable[admin_pb2.StandbyLine]) -> list[tuple[str, str]]:
    """Return a fact for each kind of node; none where nothing is known to wait."""
    groups: dict[tuple[int, int, str], list[admin_pb2.StandbyLine]] = {}
    for line in lines:
        if not (line.ready or line.making or line.ended):
            continue
        groups.setdefault((line.ready, line.making, line.ended), []).append(line)
    sentences = [_sentence(group) for _, group in sorted(groups.items())]
    return [("standbys" if not index else "", one) for index, one in enumerate(sentences)]


def _sentence(group: list[admin_pb2.StandbyLine]) -> str:
    first, where = group[0], words.names([line.node for line in group])
    if first.ended:
        return f"none on {where}: {first.ended}"
    making = f", {first.making} being made" if first.making else ""
    most = max(line.memory_bytes for line in group)
    each = "" if len(group) == 1 else " a node at most"
    return f"{first.ready} ready{making} on {where}, {words.size(most)}{each}"
