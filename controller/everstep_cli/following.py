"""Following of the event list over a restart of the controller: no event twice, none left out."""

import time
from collections.abc import Callable, Iterator

from everstep_cli.admin import AdminError, NameNotFoundError, Reader
from everstep_proto.generated import admin_pb2

# More lines than a controller makes while it is away.
_MISSED_MAX = 10_000
_AGAIN_S = 1.0


def follow(
    admin: Reader,
    subject: str,
    limit: int,
    say: Callable[[str], None],
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[admin_pb2.Event]:
    """Yield old events and then new ones, for ever; ``say`` that the controller is away, and back.

    Raises AdminError when it could not be asked even once.
    """
    newest, away = 0, False
    while True:
        try:
            for event in admin.events(subject, _MISSED_MAX if newest else limit, follow=True):
                if away:
                    away = False
                    say("the controller is back")
                if event.id > newest:
                    newest = event.id
                    yield event
        except AdminError as error:
            if not newest or isinstance(error, NameNotFoundError):
                raise
            if not away:
                away = True
                say("the controller is away; waiting for it, end with Ctrl-C")
        wait(_AGAIN_S)
