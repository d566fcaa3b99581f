"""Range of days that a command is of: --from, --to and --last, in UTC."""

from datetime import UTC, datetime

import click

from everstep_cli.report.from_admin import Range

_NS = 1_000_000_000
DAY_NS = 86_400 * _NS
# A range is no longer than the controller answers at once.
DAYS_MAX = 400


def day_of(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Return when a day begins, in nanoseconds since 1970."""
    if text is None:
        return None
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * _NS
    except ValueError:
        raise click.BadParameter(f"{text!r} is no day: say 2026-11-30") from None


from_option = click.option(
    "--from", "begin_ns", metavar="DAY", callback=day_of, help="From this day on, in UTC."
)
to_option = click.option(
    "--to", "last_ns", metavar="DAY", callback=day_of, help="To this day, which counts."
)


def day_range(
    now_ns: int, begin_ns: int | None, last_ns: int | None, days: int | None
) -> Range | None:
    """Return the days that are asked for; None for all."""
    today_ns = now_ns // DAY_NS * DAY_NS
    if begin_ns is None and last_ns is None:
        return Range(today_ns - (days - 1) * DAY_NS, today_ns + DAY_NS) if days else None
    end_ns = (today_ns if last_ns is None else last_ns) + DAY_NS
    if begin_ns is None:
        begin_ns = end_ns - (days or 30) * DAY_NS
    if begin_ns > today_ns:
        raise click.UsageError("--from is in the future")
    if begin_ns >= end_ns:
        raise click.UsageError("--from is after --to")
    if (end_ns - begin_ns) // DAY_NS > DAYS_MAX:
        raise click.UsageError(f"a range has at most {DAYS_MAX} days: begin later")
    return Range(begin_ns, end_ns)
