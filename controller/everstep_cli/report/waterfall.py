"""Waterfall: from all time down to the time that was training, a bar for each loss. Pure."""

from everstep_cli.report.account import Account
from everstep_cli.report.amounts import share, span
from everstep_cli.report.svg import FILLS, Fill, Picture, fitting
from everstep_controller.core.accounting.categories import Group

_ALL = Fill("#888888")
_ROW, _LEFT, _RIGHT, _WIDTH, _HEAD = 24, 430, 140, 960, 22


def waterfall(account: Account) -> str:
    """Return the picture; the axis begins where the losses do, so that small ones are seen."""
    whole, falling = account.seconds, list(account.falling())
    lost = sum(one.seconds for one in falling)
    begin = axis_begin(1 - lost / whole if whole > 0 else 0.0)
    plot = _WIDTH - _LEFT - _RIGHT
    slow = sum(one.group is Group.SLOW for one in falling)
    rows = len(falling) + 2 + bool(slow)
    made = Picture(_WIDTH, _HEAD + rows * _ROW + 24, f"From all {account.unit} to training time")

    def x_of(seconds: float) -> float:
        ratio = seconds / whole if whole > 0 else 0.0
        return _LEFT + plot * max(0.0, ratio - begin) / (1 - begin)

    made.text(_LEFT, 12, f"{100 * begin:g} %")
    made.text(_LEFT + plot, 12, "100 %", "end")
    for x in (_LEFT, _LEFT + plot):
        made.line(x, _HEAD - 4, x, _HEAD + rows * _ROW)
    _row(made, 0, f"all {account.unit}", _ALL, x_of(0), x_of(whole), span(whole))
    left, place = whole, 0
    for count, one in enumerate(falling, 1):
        place += 1
        if slow and count == len(falling) - slow + 1:  # they are the last ones
            _training(made, place, "training: steps that count", x_of(left), (left, whole))
            place += 1
        name = f"{one.name}: {one.meaning}" if one.meaning else one.name
        amount = f"{span(one.seconds)}, {share(one.seconds, whole)}"
        high, left = x_of(left), left - one.seconds
        _row(made, place, name, FILLS[one.group], x_of(left), high, amount)
        made.line(x_of(left), _HEAD + place * _ROW + 3, x_of(left), _HEAD + (place + 2) * _ROW - 5)
    last = "of it, at the usual speed of a step" if slow else "training: steps that count"
    _training(made, rows - 1, last, x_of(left), (left, whole))
    if begin:
        made.text(_LEFT, made.height - 6, f"The axis begins at {100 * begin:g} %.", kind="small")
    return made.drawn()


def _training(made: Picture, place: int, name: str, high: float, of: tuple[float, float]) -> None:
    amount = f"{span(of[0])}, {share(*of)}"
    _row(made, place, name, FILLS[Group.PRODUCTIVE], _LEFT, high, amount)


def _row(
    made: Picture, place: int, name: str, fill: Fill, low: float, high: float, amount: str
) -> None:
    y = _HEAD + place * _ROW
    made.text(_LEFT - 8, y + 15, fitting(name, _LEFT - 12), "end")
    made.area(low, y + 3, max(high - low, 0.75), _ROW - 8, fill, f"{name}: {amount}")
    made.text(_WIDTH - _RIGHT + 8, y + 15, amount)


def axis_begin(productive: float) -> float:
    """Return where an axis of shares begins: a round one below what is left.

    >>> [axis_begin(one) for one in (0.2, 0.62, 0.93, 0.9912)]
    [0.0, 0.5, 0.9, 0.99]
    """
    if productive < 0.5:
        return 0.0
    for limit in (0.9995, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8):
        if productive >= limit + (1 - limit) * 0.1:
            return limit
    return 0.5
