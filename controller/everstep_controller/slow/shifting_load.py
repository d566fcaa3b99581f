"""Shifting load: workers that are slow for a while, one after the other, as hot experts are."""

import math

import numpy as np

from everstep_controller.slow.episodes import Episodes, WorkerEpisode
from everstep_controller.slow.peers import Mask

# Ours: where more of a role are slow for a short time each, it is their work that changes.
_SHARE, _OF_ALL, _SHORT_STEPS, _WORKERS_MIN = 0.2, 0.03, 100, 4
# Ours: who was so much of it above its peers, within so many steps, was so as well.
_LIKE, _NEAR_STEPS = 0.5, 200


def shifting_load(seen: Episodes) -> dict[int, int]:
    """Return the workers, and of each its role, whose slowness is their work that moves about.

    More than a fifth of their role, or a thirtieth of all, was slow for a short time each, and some
    of them were so no longer, as others were.
    """
    beyond = {one.worker for one in seen.workers if one.seen > _SHORT_STEPS}
    short = [one for one in seen.workers if one.worker not in beyond]
    moving = _roles_that_take_turns(seen, short)
    found = {one.worker: int(seen.roster.roles[one.worker]) for one in short}
    alike = {one.worker for one in short if _many(seen, _like(seen, one, beyond), one.worker)}
    return {one: role for one, role in found.items() if role in moving or one in alike}


def _roles_that_take_turns(seen: Episodes, short: list[WorkerEpisode]) -> set[int]:
    roles = seen.roster.by_role
    ended: dict[int, int] = {}
    for one in short:
        if one.until is not None:
            role = int(roles.of[one.worker])
            ended[role] = min(ended.get(role, one.since), one.since)
    took_turns: dict[int, set[int]] = {}
    for one in short:
        role = int(roles.of[one.worker])
        if one.until is not None or one.since > ended.get(role, one.since):
            took_turns.setdefault(role, set()).add(one.worker)
    changed = seen.changed.union(*took_turns.values())
    many = len(changed) >= max(_WORKERS_MIN, _OF_ALL * seen.roster.size)
    return {
        role
        for role, size in enumerate(roles.sizes.tolist())
        if many or len(took_turns.get(role, ())) >= max(_WORKERS_MIN, _SHARE * size)
    }


def _like(seen: Episodes, episode: WorkerEpisode, beyond: set[int]) -> Mask:
    """Return who else was as far above its peers about then, and is so no longer."""
    least = _LIKE * math.log(episode.factor)
    near = np.abs(seen.rose_at - episode.at) <= _NEAR_STEPS
    like = np.asarray((seen.rose > least) & near)
    for one in seen.workers:
        if one.until is not None and one.worker not in beyond:
            close = abs(one.at - episode.at) <= _NEAR_STEPS
            like[one.worker] |= close and math.log(one.factor) > least
    like[episode.worker] = True
    return like


def _many(seen: Episodes, like: Mask, worker: int) -> bool:
    roles = seen.roster.roles
    of_role = roles == roles[worker]
    return bool(
        np.count_nonzero(like) >= max(_WORKERS_MIN, _OF_ALL * len(like))
        or np.count_nonzero(like & of_role) >= max(_WORKERS_MIN, _SHARE * np.count_nonzero(of_role))
    )
