"""Printable text: texts of jobs, kernels and operators, made safe for a terminal or a log. Pure."""

_LINE_MAX = 500


def printable(text: str) -> str:
    r"""Return the text with what would move the cursor or the like written out: ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def brief(text: str) -> str:
    """Return as much of the text, printable, as fits a line of `everstep why`."""
    return printable(text)[:_LINE_MAX]


def quoted(text: str) -> str:
    """Return somebody else's words within a sentence: printable, and ended by nothing in them."""
    return f'"{printable(text).replace(chr(34), chr(39))}"'


def with_article(word: str) -> str:
    """Return a word, such as the name of a type, with its article: "an int"."""
    return f"{'an' if word.lower().startswith(('a', 'e', 'i', 'o')) else 'a'} {word}"
