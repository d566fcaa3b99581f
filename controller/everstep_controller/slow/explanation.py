"""Words and numbers of a slow verdict, for people who have to decide."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from everstep_controller.slow.episodes import Episodes, PlaceEpisode, WorkerEpisode
from everstep_controller.slow.losses import CommonPause
from everstep_controller.slow.peers import PEERS_MIN, Indices, Roster
from everstep_controller.slow.shifting_load import shifting_load
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
_MOST = 0.8
_PAUSES_MIN, _PAUSE_SHARE_MIN, _LOADER_SHARE = 3, 0.001, 0.5
# Ours: so many of those that ever pause do so at once.
_TOGETHER_SHARE = 0.5
_STEPS_MIN = 10
# Ours: what is usual has changed after so many steps; less often nothing is said to be regular.
_LASTING_STEPS, _PERIOD_MIN = 10, 5
_NAMES_MAX = 8
# As `track.Rules`: more of a role are not named one by one.
_FEW_OF_ROLE = 0.2
_PLACES_MAX = 3


def explained(seen: Episodes) -> SlowVerdict:
    """Return the verdict on what was seen."""
    moving = shifting_load(seen)
    slow = tuple(_worker(seen, one) for one in seen.workers if one.worker not in moving)
    places = tuple(_place(seen, one) for one in seen.places)
    imbalances = (*_imbalances(seen, moving), *_moved(seen, moving))
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


def _worker(seen: Episodes, episode: WorkerEpisode) -> SlowWorker:
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


def _place(seen: Episodes, episode: PlaceEpisode) -> SlowPlaceFound:
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


def _imbalances(seen: Episodes, moving: Mapping[int, int]) -> Iterator[Imbalance]:
    apart = [*_different(seen), *_two_speeds(seen, moving)]
    yield from apart
    yield from _uneven_data(seen, max((one.ratio for one in apart), default=0.0))
    yield from _stages(seen)


def _uneven_data(seen: Episodes, apart: float) -> Iterator[Imbalance]:
    """Yield that steps are uneven, beyond what those are apart who stay so."""
    losses = seen.losses
    ratio = losses.imbalance
    if ratio <= apart:
        return
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


def _different(seen: Episodes) -> Iterator[Imbalance]:
    of = seen.roster.roles
    which = np.array(sorted(seen.different), dtype=np.int64)
    roles = np.unique(of[which]).tolist()
    if len(roles) > 1 and len(roles) == np.count_nonzero(seen.roster.by_role.sizes > PEERS_MIN):
        yield Imbalance(
            ImbalanceKind.REPLICA,
            seen.losses.speeds.factor(which) - 1,
            f"{_apart(seen, which)}, some of every role: a replica whose sequences are longer, "
            f"roles that are not true, or {_shared(seen)}",
        )
        return
    for role in roles:
        workers = which[of[which] == role]
        yield Imbalance(
            ImbalanceKind.MIXED_ROLE,
            seen.losses.speeds.factor(workers) - 1,
            f"{_apart(seen, workers)}, too many to be named one by one: {_either(seen)}",
        )


def _two_speeds(seen: Episodes, moving: Mapping[int, int]) -> Iterator[Imbalance]:
    """Yield the roles of two speeds, but for those that something else explains already."""
    if seen.losses.steps < _STEPS_MIN:
        return
    told = seen.different | set(moving) | {one.worker for one in seen.workers}
    told |= {one for episode in seen.places for one in episode.place.members.tolist()}
    for found in seen.losses.speeds.two_speeds():
        of_role, slower = len(found.slower) + len(found.others), len(found.slower)
        # Of more than four, one or two that are slow are judged beside the others.
        few = of_role > PEERS_MIN and slower <= max(1.0, _FEW_OF_ROLE * of_role)
        if few or not told.isdisjoint(found.slower.tolist()):
            continue
        yield Imbalance(
            ImbalanceKind.TWO_SPEEDS,
            seen.losses.speeds.factor(found.slower) - 1,
            f"{_apart(seen, found.slower)}; which of both is usual does not show: {_either(seen)}",
        )


def _apart(seen: Episodes, which: Indices) -> str:
    """Return how much longer some take than the others of their role, since when, and where."""
    roster, speeds = seen.roster, seen.losses.speeds
    roles = {int(one) for one in roster.roles[which]}
    name = roster.role_names[roles.pop()] if len(roles) == 1 else ""
    told = f" of role {name}" if name else ""
    takes = "takes" if len(which) == 1 else "take"
    since = "from the first step on" if speeds.always(which) else "and did not in the first steps"
    return (
        f"{_workers(seen, which.tolist())}{told}{_only_of(roster, which)} {takes} "
        f"{speeds.factor(which):.2f} times as long as the others, {since}"
    )


def _only_of(roster: Roster, which: Indices) -> str:
    """Return the places that have these workers and no others, where they are few: in words."""
    others = np.delete(np.arange(roster.size), which)
    for kind, of in roster.places.items():
        places = np.unique(of[which])
        apart = places[0] >= 0 and not np.isin(places, of[others]).any()
        if apart and len(places) < min(len(which), _PLACES_MAX + 1):
            known = roster.place_names[kind]
            names = [str(known[int(one)]) for one in places]
            return f", all of {kind} {', '.join(names)},"
    return ""


def _either(seen: Episodes) -> str:
    return (
        "either they have more to do (tell who does the same work: column role, or "
        f"everstep.role() in a script), or {_shared(seen)}"
    )


def _shared(seen: Episodes) -> str:
    tell = "" if seen.roster.places else " (tell it: column node, leaf, rack or power)"
    return f"they, or what they share{tell}, are slow; seconds alone do not tell which"


def _workers(seen: Episodes, which: Sequence[int]) -> str:
    """Return how many workers, and the names of the first ones."""
    names = ", ".join(seen.roster.names[one] for one in which[:_NAMES_MAX])
    if len(which) == 1:
        return f"worker {names}"
    return f"{len(which)} workers ({names}{', …' if len(which) > _NAMES_MAX else ''})"


def _moved(seen: Episodes, moving: Mapping[int, int]) -> Iterator[Imbalance]:
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


def _stages(seen: Episodes) -> Iterator[Imbalance]:
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


def _pauses(seen: Episodes) -> Iterator[Pause]:
    yield from _common_pauses(seen.losses.common)
    losses = seen.losses
    # A worker that is slow in most of its steps is not fast between.
    between = losses.pauses < _MOST * losses.speeds.rows
    # Nor is it known how fast those are that are not judged.
    between[losses.speeds.seldom()] = False
    pauses, paused_s = losses.pauses * between, losses.paused_s * between
    total = int(pauses.sum())
    if total < _PAUSES_MIN or total < _PAUSE_SHARE_MIN * losses.steps:
        return
    worst = int(np.argmax(pauses))
    count, seconds = int(pauses[worst]), float(paused_s[worst])
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
        total, all_s = total - count, float(paused_s.sum()) - seconds
    else:
        all_s = float(paused_s.sum())
    if total >= _PAUSES_MIN:
        several = int(np.count_nonzero(pauses))
        if several >= _PAUSES_MIN and total >= _TOGETHER_SHARE * several * losses.pause_steps:
            yield _together(seen, np.flatnonzero(pauses).tolist(), total, all_s)
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


def _together(seen: Episodes, which: Sequence[int], total: int, all_s: float) -> Pause:
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


def _blind(seen: Episodes) -> Iterator[str]:
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
            "their own past: nobody of them is named for being slow from the first step on"
        )
    yield from _seldom(seen)


def _seldom(seen: Episodes) -> Iterator[str]:
    """Yield who told its seconds too seldom to be judged."""
    speeds = seen.losses.speeds
    for worker in speeds.seldom().tolist()[:_NAMES_MAX]:
        factor = speeds.factor(np.array([worker]))
        yield (
            f"worker {seen.roster.names[worker]} told its seconds in {speeds.rows[worker]} of "
            f"{seen.losses.steps} steps, and is not judged: that takes eight of ten steps in a "
            f"row. In those that it told it took {factor:.2f} times as long as its peers"
        )
    more = len(speeds.seldom()) - _NAMES_MAX
    if more > 0:
        yield f"{more} more workers told their seconds as seldom, and are not judged"


def _sentence(
    seen: Episodes,
    slow: Sequence[SlowWorker],
    places: Sequence[SlowPlaceFound],
    imbalances: Sequence[Imbalance],
) -> str:
    if places or slow:
        told = [one.sentence for one in places] + [one.sentence for one in slow]
        return _capital(told[0]) if len(told) == 1 else _several(slow, places)
    if seen.losses.steps < _STEPS_MIN:
        return f"Nobody can be judged from {seen.losses.steps} steps"
    seldom = len(seen.losses.speeds.seldom()) > 0
    nobody = "No worker that can be judged is slow" if seldom else "No worker is slow"
    if imbalances:
        said = "Nobody can be named" if imbalances[0].is_open else nobody
        return f"{said}. {_capital(imbalances[0].sentence)}"
    return nobody


def _several(slow: Sequence[SlowWorker], places: Sequence[SlowPlaceFound]) -> str:
    names = [f"{one.kind} {one.name}" for one in places] + [f"worker {one.worker}" for one in slow]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"Slow: {', '.join(names[:_NAMES_MAX])}{more}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
