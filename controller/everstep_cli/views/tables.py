"""Building blocks of all views: the table and the sheet of facts."""

from collections.abc import Iterable

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Cell = str | Text


def table(*columns: str, right: Iterable[str] = (), wrap: Iterable[str] = ()) -> Table:
    """Return an empty table; columns in ``right`` are numbers, those in ``wrap`` are sentences."""
    numbers, sentences = set(right), set(wrap)
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="bold",
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in numbers else "left",
            no_wrap=name not in sentences,
            overflow="fold" if name in sentences else "ellipsis",
        )
    return made


def facts(pairs: Iterable[tuple[str, Cell]]) -> Table:
    """Return names and values, one pair a line; pairs without a value are left out."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            made.add_row(name, value)
    return made


def section(title: str) -> Padding:
    """Return a heading with a line above it."""
    return Padding(Text(title, style="bold"), (1, 0, 0, 0), expand=False)
