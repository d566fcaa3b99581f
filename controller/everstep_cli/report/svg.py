"""SVG as text: areas that are told apart in black and white, lines, and escaped words. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from itertools import count

from everstep_controller.core.accounting.categories import Group

# Widths of letters of the page's font at 12 pixels, for what has to fit: an estimate.
_LETTER = 6.2
CONTROLS = dict.fromkeys([*range(32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True, slots=True)
class Fill:
    """Colour of an area, and the pattern that tells it apart where there is no colour."""

    color: str
    pattern: str = ""


# Okabe and Ito's colours; patterns as paths in a square of 8.
FILLS = {
    Group.PRODUCTIVE: Fill("#009E73"),
    Group.SLOW: Fill("#F0E442", "M0 4h3"),
    Group.OVERHEAD: Fill("#56B4E9", "M4 0v8"),
    Group.INITIAL: Fill("#BBBBBB", "M0 4h8"),
    Group.PLANNED: Fill("#CC79A7", "M0 8L8 0"),
    Group.INCIDENT: Fill("#A63603", "M0 0L8 8"),
    Group.UNKNOWN: Fill("#FFFFFF", "M0 0L8 8M0 8L8 0"),
    Group.ABSENT: Fill("#EEEEEE", "M3 3h2v2h-2z"),
}
# Stages of an incident from its fault on, from dark to light: their order is told by position too.
STAGES = (
    "#5A1A02", "#7F2704", "#993005", "#B33D03", "#CC5200", "#D55E00", "#E6690C", "#F17220",
    "#F78234", "#FD9A50", "#FDAE6B", "#FDC08C", "#FDD0A2", "#FEE6CE",
)  # fmt: skip


def words(text: str) -> str:
    """Return a text as it may stand in SVG and HTML: escaped, and without control characters."""
    return escape(text.translate(CONTROLS))


def fitting(text: str, width: float) -> str:
    """Return as much of a text as fits, with an ellipsis where that is not all."""
    most = int(width / _LETTER)
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


@dataclass(slots=True)
class Picture:
    """A picture that grows: its parts are written in the order in which they are drawn."""

    width: float
    height: float
    # What somebody hears who does not see it.
    title: str
    parts: list[str] = field(default_factory=list)
    _patterns: dict[Fill, str] = field(default_factory=dict)

    def area(
        self, x: float, y: float, width: float, height: float, fill: Fill, told: str = ""
    ) -> None:
        """Draw a rectangle; ``told`` is shown when somebody points at it."""
        shape = f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{height:.2f}"'
        title = f"<title>{words(told)}</title>" if told else ""
        self.parts.append(f'{shape} fill="{fill.color}">{title}</rect>')
        if fill.pattern and width > 2:
            self.parts.append(f'{shape} fill="url(#{self._pattern(fill)})" class="hatch"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> None:
        """Draw a line of a class of the page's style."""
        place = f'x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"'
        self.parts.append(f'<line {place} class="{kind}"/>')

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", kind: str = "label"
    ) -> None:
        """Write words; ``anchor`` is "start", "middle" or "end"."""
        place = f'x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} class="{kind}">{words(text)}</text>')

    def drawn(self) -> str:
        """Return it as an element of a page."""
        patterns = "".join(
            f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<path d="{fill.pattern}" class="stroke"/></pattern>'
            for fill, name in self._patterns.items()
        )
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img"'
            f' xmlns="http://www.w3.org/2000/svg"><title>{words(self.title)}</title>'
            f"<defs>{patterns}</defs>{''.join(self.parts)}</svg>"
        )

    def _pattern(self, fill: Fill) -> str:
        return self._patterns.setdefault(fill, f"p{next(_NUMBERS)}")


# Names of patterns are of the whole page.
_NUMBERS = count()


def legend(entries: Iterable[tuple[str, Fill]], width: float) -> str:
    """Return a picture of which area is what, in as many lines as it needs."""
    made = Picture(width, 18, "what the areas are")
    x, y = 0.0, 4.0
    for name, fill in entries:
        needs = 24 + len(name) * _LETTER + 16
        if x and x + needs > width:
            x, y = 0.0, y + 18
        made.area(x, y, 14, 10, fill)
        made.text(x + 20, y + 9, name)
        x += needs
    made.height = y + 16
    return made.drawn()
