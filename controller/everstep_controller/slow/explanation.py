"""Words and numbers of a slow verdict, for people who have to decide."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from everstep_controller.slow.losses import CommonPause
from everstep_controller.slow.moving_work import moving_work
from everstep_controller.slow.peers import PEERS_MIN
from everstep_controller.slow.seen import PlaceEpisode, Seen, WorkerEpisode
from everstep_controller.slow.verdict import (
    Advice,
    Imbalance,
    ImbalanceKind,
    Pause,
    PauseKind,
    SlowPlaceFound,
    SlowVerdict,
    SlowWorker,
)

# Published: who explains less than half of the loss is not what holds the job back.
_SHARE_TO_SWAP = 0.5
# Ours: what is worth to be told.
_DATA_RATIO, _STAGE_RATIO = 0.05, 0.10
# Ours: where one worker is the last in more steps, it is no imbalance that moves about.
_LAST_SHARE_MAX = 0.5
_PAUSES_MIN, _PAUSE_SHARE_MIN, _LOADER_SHARE = 3, 0.001, 0.5
# Ours: so many of those that ever pause do so at once.
_TOGETHER_SHARE = 0.5
_STEPS_MIN = 10
# Ours: what is usual has changed after so many steps; less often nothing is said to be regular.
_LASTING_STEPS, _PERIOD_MIN = 10, 5
_NAMES_MAX = 8


def explained(seen: Seen) -> SlowVerdict:
    """Return the verdict on what was seen."""
    moving = moving_work(seen)
    slow = tuple(_worker(seen, one) for one in seen.workers if one.worker not in moving)
    places = tuple(_place(seen, one) for one in seen.places)
    imbalances = (*_imbalances(seen), *_moved(seen, moving))
    losses = seen.losses
    return SlowVerdict(
        sentence=_sentence(seen, slow, places, imbalances),
        slow=slow,
        places=places,
        watched=tuple(seen.roster.names[one] for one in seen.nominated),
        imbalances=imbalances,
        pauses=tuple(_pauses(seen)),
        blind=tuple(_blind(seen)),
        workers=seen.roster.size,
        roles=len(seen.roster.role_names),
        steps=losses.steps,
        seconds=losses.seconds,
        ideal_seconds=losses.ideal_s,
    )


def percent(ratio: float) -> str:
    """Return a share in words: 12 %, or 0.4 % where it is small."""
    return f"{100 * ratio:.0f} %" if ratio >= 0.095 else f"{100 * ratio:.1f} %"


def span(since: int, until: int | None) -> str:
    """Return from when to when, in steps."""
    return f"since step {since}" if until is None else f"from step {since} to step {until}"


def _worker(seen: Seen, episode: WorkerEpisode) -> SlowWorker:
    roster = seen.roster
    name, role = roster.names[episode.worker], roster.role_names[int(roster.roles[episode.worker])]
    advice = Advice.SWAP if episode.share >= _SHARE_TO_SWAP else Advice.NOTIFY
    than = "its own past, as it has fewer than three peers" if episode.own_past else "its peers"
    verb = "takes" if episode.until is None else "took"
    what = (
        "another node in its place would be worth it"
        if advice is Advice.SWAP
        else "without it the job would be about as slow"
    )
    sentence = (
        f"worker {name} {verb} {episode.factor:.2f} times as long as {than}, "
        f"{span(episode.since, episode.until)}; it explains {percent(episode.share)} of what the "
        f"job lost meanwhile: {what}"
    )
    return SlowWorker(
        worker=name,
        role=role,
        factor=episode.factor,
        since_step=episode.since,
        judged_step=episode.judged,
        until_step=episode.until,
        share=episode.share,
        advice=advice,
        own_past=episode.own_past,
        sentence=sentence,
    )


def _place(seen: Seen, episode: PlaceEpisode) -> SlowPlaceFound:
    place = episode.place
    name = seen.roster.place_names[place.kind][place.place]
    verb = "take" if episode.until is None else "took"
    sentence = (
        f"the {len(place.members)} workers of {place.kind} {name} {verb} {episode.factor:.2f} "
        f"times as long as their peers, {span(episode.since, episode.until)}: one cause, which "
        "they share"
    )
    return SlowPlaceFound(
        kind=place.kind,
        name=name,
        workers=len(place.members),
        factor=episode.factor,
        since_step=episode.since,
        until_step=episode.until,
        sentence=sentence,
    )


def _imbalances(seen: Seen) -> Iterator[Imbalance]:
    losses = seen.losses
    ratio = losses.imbalance
    last = float(losses.last.max()) / max(losses.steps, 1)
    if ratio >= _DATA_RATIO and last <= _LAST_SHARE_MAX and losses.steps >= _STEPS_MIN:
        yield Imbalance(
            ImbalanceKind.DATA,
            ratio,
            f"half of the steps take {percent(ratio)} or more longer than the workers' medians, "
            "because of one worker or another (none is the last one in more than "
            f"{percent(last)} of the steps): the "
            "work is uneven, as with sequences of different lengths; no worker is at fault",
        )
    yield from _stages(seen)
    yield from _different(seen)


def _different(seen: Seen) -> Iterator[Imbalance]:
    of = seen.roster.roles
    roles = sorted({int(of[one]) for one in seen.different})
    if len(roles) > 1 and len(roles) == np.count_nonzero(seen.roster.by_role.sizes > PEERS_MIN):
        yield Imbalance(
            ImbalanceKind.REPLICA,
            0.0,
            f"{_workers(seen, sorted(seen.different))} are slower than their peers by about as "
            "much, some of every role: a replica whose sequences are longer, or roles that are not "
            "true; no worker is at fault",
        )
        return
    for role in roles:
        workers = sorted(one for one in seen.different if int(of[one]) == role)
        name = seen.roster.role_names[role]
        told = f" of role {name}" if name else ""
        yield Imbalance(
            ImbalanceKind.MIXED_ROLE,
            0.0,
            f"{_workers(seen, workers)}{told} are slower than the others by about as much, too "
            "many to be at fault: they do different work. Tell who does the same in the column "
            "role",
        )


def _workers(seen: Seen, which: Sequence[int]) -> str:
    """Return how many workers, and the names of the first ones."""
    names = ", ".join(seen.roster.names[one] for one in which[:_NAMES_MAX])
    return f"{len(which)} workers ({names}{', …' if len(which) > _NAMES_MAX else ''})"


def _moved(seen: Seen, moving: Mapping[int, int]) -> Iterator[Imbalance]:
    for role in sorted(set(moving.values())):
        workers = [one for one, of in moving.items() if of == role]
        ratio = max(one.factor for one in seen.workers if one.worker in workers) - 1
        name = seen.roster.role_names[role]
        told = f"workers of role {name}" if name else "workers"
        yield Imbalance(
            ImbalanceKind.MOVING,
            ratio,
            f"{len(workers)} {told} were slower by up to {percent(ratio)}, each for a short time: "
            "their work changes, as that of experts that are chosen more often; no worker is at "
            "fault",
        )


def _stages(seen: Seen) -> Iterator[Imbalance]:
    losses, names = seen.losses, seen.roster.role_names
    known = losses.role_s[losses.role_s > 0]
    if len(known) < 2:
        return
    heaviest = int(np.argmax(losses.role_s))
    rest = float(np.median(np.delete(losses.role_s, heaviest)))
    ratio = float(losses.role_s[heaviest]) / rest - 1 if rest > 0 else 0.0
    if ratio >= _STAGE_RATIO:
        yield Imbalance(
            ImbalanceKind.STAGE,
            ratio,
            f"role {names[heaviest]} takes {percent(ratio)} longer than the other roles: if roles "
            "are the stages of a pipeline, the others wait for it; no worker is at fault",
        )


def _pauses(seen: Seen) -> Iterator[Pause]:
    yield from _common_pauses(seen.losses.common)
    losses = seen.losses
    total = int(losses.pauses.sum())
    if total < _PAUSES_MIN or total < _PAUSE_SHARE_MIN * losses.steps:
        return
    worst = int(np.argmax(losses.pauses))
    count, seconds = int(losses.pauses[worst]), float(losses.paused_s[worst])
    if count >= _PAUSES_MIN and count >= _LOADER_SHARE * total:
        name = seen.roster.names[worst]
        yield Pause(
            PauseKind.ONE_WORKER,
            count,
            seconds,
            name,
            f"worker {name} paused in {count} of {losses.steps} steps, {seconds / count:.3g} s "
            "each on average, and is as fast as its peers between: its loader or its storage, not "
            "its speed",
        )
        total, all_s = total - count, float(losses.paused_s.sum()) - seconds
    else:
        all_s = float(losses.paused_s.sum())
    if total >= _PAUSES_MIN:
        several = int(np.count_nonzero(losses.pauses))
        if several >= _PAUSES_MIN and total >= _TOGETHER_SHARE * several * losses.pause_steps:
            yield _together(seen, total, all_s)
            return
        yield Pause(
            PauseKind.SCATTERED,
            total,
            all_s,
            "",
            f"{several} workers paused now and then ({total} times, {all_s / total:.3g} s each on "
            "average), as garbage collection does; collecting in the same step on all workers "
            "makes them wait once",
        )


def _together(seen: Seen, total: int, all_s: float) -> Pause:
    which = np.flatnonzero(seen.losses.pauses).tolist()
    names = ", ".join(seen.roster.names[one] for one in which[:_NAMES_MAX])
    names += ", …" if len(which) > _NAMES_MAX else ""
    told = (
        f"{len(which)} workers pause in the same steps ({names}; {seen.losses.pause_steps} times, "
    )
    told += f"{all_s / total:.3g} s each on average): what they share, such as the loader or the "
    told += "storage of their node, not their speed"
    return Pause(PauseKind.TOGETHER, total, all_s, "", told)


def _common_pauses(common: Sequence[CommonPause]) -> Iterator[Pause]:
    early = [one for one in common if one.early]
    if early:
        seconds = sum(one.seconds for one in early)
        yield Pause(
            PauseKind.FIRST_STEPS,
            len(early),
            seconds,
            "",
            f"{len(early)} of the first steps took all workers {seconds:.3g} s longer than usual, "
            "together: compiling and allocating, as every start does",
        )
    runs = _runs([one for one in common if not one.early])
    for run in runs:
        if len(run) >= _LASTING_STEPS:
            longer = float(np.mean([one.seconds for one in run]))
            told = f"all workers take {longer:.3g} s longer since step {run[0].step} than before it"
            told += ": longer sequences, or what all share; no worker is at fault"
            seconds = sum(one.seconds for one in run)
            yield Pause(PauseKind.LASTING, len(run), seconds, "", told)
    short = [run for run in runs if len(run) < _LASTING_STEPS]
    if short:
        yield _common_pause(short)


def _runs(common: Sequence[CommonPause]) -> list[list[CommonPause]]:
    """Return pauses by steps that were seen one after the other: those are one pause."""
    runs: list[list[CommonPause]] = []
    for one in common:
        if runs and one.seen == runs[-1][-1].seen + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _common_pause(runs: Sequence[Sequence[CommonPause]]) -> Pause:
    starts = [run[0].step for run in runs]
    count, seconds = sum(map(len, runs)), sum(one.seconds for run in runs for one in run)
    length = f"{seconds / len(runs):.3g} s longer than usual"
    gaps, seen = np.diff(starts), np.diff([run[0].seen for run in runs])
    if len(gaps) >= 2 and np.gcd.reduce(seen) >= _PERIOD_MIN:
        every = int(np.gcd.reduce(gaps))
        at = f"every {every} steps" if len(set(gaps.tolist())) == 1 else f"at multiples of {every}"
        told = f"{at} all workers take {length}: evaluation, or a save"
        return Pause(PauseKind.PERIODIC, count, seconds, "", told)
    listed = ", ".join(map(str, starts[:_NAMES_MAX])) + (", …" if len(starts) > _NAMES_MAX else "")
    times = "once" if len(runs) == 1 else f"{len(runs)} times"
    told = f"all workers took {length} {times} (steps {listed}): what they share, such as "
    told += "storage or a larger step; no worker is at fault"
    return Pause(PauseKind.COMMON, count, seconds, "", told)


def _blind(seen: Seen) -> Iterator[str]:
    losses, roster = seen.losses, seen.roster
    if losses.steps < _STEPS_MIN:
        yield f"{losses.steps} steps are too few: who is slow shows after {_STEPS_MIN}"
    if losses.steps and losses.equal_steps > 0.8 * losses.steps:
        yield (
            "in most steps all workers tell the same seconds: those are times of whole steps, in "
            "which all wait for the slowest. Tell what each computed, without waiting for others"
        )
    sizes = roster.by_role.sizes
    few = int(np.count_nonzero(sizes[roster.roles] <= 3))
    if few:
        yield (
            f"{few} workers have fewer than three peers with their role, and were compared with "
            "their own past: if they were slow from the first step on, that does not show"
        )


def _sentence(
    seen: Seen,
    slow: Sequence[SlowWorker],
    places: Sequence[SlowPlaceFound],
    imbalances: Sequence[Imbalance],
) -> str:
    if places or slow:
        told = [one.sentence for one in places] + [one.sentence for one in slow]
        return _capital(told[0]) if len(told) == 1 else _several(slow, places)
    if seen.losses.steps < _STEPS_MIN:
        return f"Nobody can be judged from {seen.losses.steps} steps"
    if imbalances:
        return f"No worker is slow. {_capital(imbalances[0].sentence)}"
    return "No worker is slow"


def _several(slow: Sequence[SlowWorker], places: Sequence[SlowPlaceFound]) -> str:
    names = [f"{one.kind} {one.name}" for one in places] + [f"worker {one.worker}" for one in slow]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"Slow: {', '.join(names[:_NAMES_MAX])}{more}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
