"""A node into which nothing is injected."""


class NoInjections:
    """Keeps the orders that it got."""

    def __init__(self) -> None:
        self.ordered: list[str] = []

    def order(self, name: str, text: str, duration_s: float) -> None:
        """See Injections."""
        self.ordered.append(f"{name} {text} {duration_s:g}")

    def clear(self, name: str) -> None:
        """See Injections."""
        self.ordered.append(f"clear {name}")
