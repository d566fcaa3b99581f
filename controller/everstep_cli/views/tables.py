"""Building blocks of all views: the table and the sheet of facts."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

# Width of a pipe or a file: wider than any row, of which the longest have some thousand characters.
PIPED_WIDTH = 100_000

Cell = str | Text


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of a cell: each below the other on a screen; in a pipe one line, for grep and awk."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._shown(console)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._shown(console))

    def _shown(self, console: Console) -> Text:
        if console.width < PIPED_WIDTH:
            return self.text
        return Text("; ").join(line for line in self.text.split("\n") if line)


class _Rows(Table):
    """A table with a line for each row where it is piped, whatever is in a cell."""

    def add_row(
        self,
        *renderables: RenderableType | None,
        style: StyleType | None = None,
        end_section: bool = False,
    ) -> None:
        cells = map(_cell, renderables)
        super().add_row(*cells, style=style, end_section=end_section)


def _cell(shown: RenderableType | None) -> RenderableType | None:
    text = Text(shown) if isinstance(shown, str) else shown
    return _Lines(text) if isinstance(text, Text) and "\n" in text.plain else shown


def grid() -> Table:
    """Return an empty table without names of columns."""
    return _Rows.grid(padding=(0, 2))


def table(*columns: str, right: Iterable[str] = (), wrap: Iterable[str] = ()) -> Table:
    """Return an empty table; columns in ``right`` are numbers, those in ``wrap`` are sentences."""
    numbers, sentences = set(right), set(wrap)
    made = _Rows(
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
    made = grid()
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            made.add_row(name, value)
    return made


def section(title: str) -> Padding:
    """Return a heading with a line above it."""
    return Padding(Text(title, style="bold"), (1, 0, 0, 0), expand=False)
