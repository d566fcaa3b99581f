"""Point-to-point counts of gloo: who left a send or receive out between two collectives. Pure."""

from everstep_common.hangs.frontiers import Frontiers
from everstep_common.hangs.mismatches import majority_counts


def departed_in_p2p(frontiers: Frontiers) -> dict[int, str]:
    """Return ranks that did another number of sends and receives than most; with reasons.

    gloo records none of them, but counts them with the next collective: ranks that wait in the same
    one can be compared. Where ranks have different parts, as in a pipeline, there is no majority.
    """
    found = {}
    for group in frontiers.groups:
        counts = {
            rank: told.p2p_enqueued
            for rank in group.waiting
            if (told := group.told[rank]).p2p_enqueued is not None
            and told.p2p_completed is None
            and told.enqueued == group.farthest()
        }
        usual = majority_counts(counts) or _of_two(counts)
        for rank, count in usual[1].items() if usual else ():
            found[rank] = (
                f"it did {count} sends and receives before the collective in which"
                f" {usual[0] if usual else 0} were done by its peers"
            )
    return found


def _of_two(counts: dict[int, int]) -> tuple[int, dict[int, int]] | None:
    """Of two ranks that were equal before, the one with fewer left something out."""
    if len(counts) != 2 or len(set(counts.values())) != 2:
        return None
    most = max(counts.values())
    return most, {rank: one for rank, one in counts.items() if one == most - 1}
