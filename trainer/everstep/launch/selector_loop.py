"""Ready files: waits for the files of a selector, and runs the callback of each that is ready."""

import selectors


def call_ready(selector: selectors.BaseSelector, timeout_s: float | None) -> None:
    """Wait, and call what is registered for each file that is ready.

    What was unregistered by one of these calls is not called any more: its file may be closed, and
    its number be another's.
    """
    registered = selector.get_map()
    for key, _ in selector.select(timeout_s):
        if registered.get(key.fd) is key:
            key.data()
