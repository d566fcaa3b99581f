"""Sanitizing of answers: text that others wrote cannot send control codes to the terminal."""

from google.protobuf.message import Message

from everstep_common.printable import printable


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
