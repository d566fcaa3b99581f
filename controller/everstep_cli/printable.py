"""Texts of jobs, kernels and operators on a terminal: nothing in them may steer it."""

from google.protobuf.message import Message


def printable(text: str) -> str:
    r"""Return the text with what would move the cursor or the like written out: ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def make_printable(message: Message) -> None:
    """Make every text in a message printable."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, printable(value))
            else:
                value[:] = [printable(item) for item in value]
        elif field.type == field.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                make_printable(part)
