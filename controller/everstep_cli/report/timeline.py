"""Timeline: when a job trained, and when what happened to it. Pure."""

from collections.abc import Iterator, Sequence

from everstep_cli.report.account import FALLING, Account, IncidentAccount, Period, Slice
from everstep_cli.report.amounts import moment, span, ticks
from everstep_cli.report.svg import FILLS, Fill, Picture
from everstep_cli.report.waterfall import axis_begin
from everstep_controller.core.accounting.categories import Group

_WIDTH, _LEFT, _RIGHT, _MARKS, _BAR = 960, 8, 8, 22, 34
_TOP = _MARKS + 16
_COLUMN = 120
# Room of a date.
_LABEL = 96.0
_NS = 1_000_000_000
_NOTHING = Fill("#DDDDDD")


def timeline(account: Account) -> str:
    """Return a mark for each incident, and below it the whole time, true to scale."""
    made = Picture(_WIDTH, _TOP + _BAR + 26, f"What {account.subject} did when")
    begin, length = account.begin_ns, max(1, account.end_ns - account.begin_ns)

    def x_of(at_ns: int) -> float:
        ratio = min(1.0, max(0.0, (at_ns - begin) / length))
        return _LEFT + ratio * (_WIDTH - _LEFT - _RIGHT)

    # Of all jobs together there is no saying what they did between incidents.
    base, told = (FILLS[Group.PRODUCTIVE], "training") if account.of_one_job else (_NOTHING, "")
    made.area(_LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _BAR, base, told)
    if account.of_one_job:
        first = x_of(begin + int(account.initial * _NS)) - _LEFT
        made.area(_LEFT, _TOP, first, _BAR, FILLS[Group.INITIAL], f"start: {span(account.initial)}")
    for one in account.incidents:
        low, high = x_of(one.onset_ns), x_of(one.over_ns or account.end_ns)
        fill = FILLS[Group.PLANNED if one.planned else Group.INCIDENT]
        made.area(
            low, 4, 1.5, _MARKS if not one.planned else _MARKS / 2, Fill(fill.color), _told(one)
        )
        made.area(low, _TOP, high - low, _BAR, fill, _told(one))
    made.line(_LEFT, 4 + _MARKS, _WIDTH - _RIGHT, 4 + _MARKS)
    for at_ns, word in ticks(begin, account.end_ns, 8):
        x = x_of(at_ns)
        made.line(x, _TOP + _BAR, x, _TOP + _BAR + 5)
        if 40 < x < _WIDTH - 40:
            made.text(x, _TOP + _BAR + 18, word, "middle")
    return made.drawn()


def _told(one: IncidentAccount) -> str:
    cost = span(one.seconds) if one.stages else "its cost is not known"
    return f"{one.id}, {moment(one.onset_ns)}, {one.cause}, {cost}: {one.sentence}"


def ratio_strip(account: Account) -> str:
    """Return a column for each period: what it went to, from training at the bottom up.

    Times are true to scale, and one in which there was nothing is empty. The axis begins below the
    worst period, so that small losses are seen.
    """
    periods = [one for one in account.periods if one.seconds > 0]
    begin = axis_begin(min((one.ettr_time for one in periods), default=0.0))
    made = Picture(_WIDTH, _COLUMN + 34, f"What each period of {account.subject} went to")
    left = 52
    made.text(left - 6, 16, "100 %", "end")
    made.text(left - 6, 12 + _COLUMN, f"{100 * begin:g} %", "end")
    first_ns = periods[0].begin_ns if periods else 0
    length_ns = max(1, periods[-1].end_ns - first_ns) if periods else 1

    def x_of(at_ns: int) -> float:
        return left + (at_ns - first_ns) / length_ns * (_WIDTH - left - _RIGHT)

    for one in periods:
        _column(made, x_of(one.begin_ns), x_of(one.end_ns) - x_of(one.begin_ns), begin, one)
    days = all(moment(one.begin_ns).endswith("00:00:00") for one in periods)
    shown_until = -_LABEL
    for one in periods:
        x = x_of((one.begin_ns + one.end_ns) // 2)
        if x - shown_until > _LABEL and x < _WIDTH - _LABEL / 3:
            word = moment(one.begin_ns)[5 : 10 if days else 16]
            made.text(x, _COLUMN + 28, word, "middle")
            shown_until = x
    return made.drawn()


def _column(made: Picture, x: float, width: float, begin: float, period: Period) -> None:
    bottom = 0.0
    for fill, seconds, name in _stacked(period.slices):
        top = bottom + seconds / period.seconds
        low, high = (max(0.0, one - begin) / (1 - begin) * _COLUMN for one in (bottom, top))
        told = f"{moment(period.begin_ns)}, {name}: {span(seconds)}"
        made.area(x, 12 + _COLUMN - high, max(0.5, width - 1), high - low, fill, told)
        bottom = top


def _stacked(slices: Sequence[Slice]) -> Iterator[tuple[Fill, float, str]]:
    for group in (Group.PRODUCTIVE, Group.SLOW, *FALLING[:-1]):
        seconds = sum(max(0.0, one.seconds) for one in slices if one.group is group)
        if seconds:
            yield FILLS[group], seconds, group.value
