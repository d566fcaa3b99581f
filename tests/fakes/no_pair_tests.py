"""A node on which no fixed work is done."""

from everstep_common.orders import RunPairTest


class NoPairTests:
    """Keeps the orders that it got."""

    def __init__(self) -> None:
        self.ordered: list[str] = []

    def order(self, wanted: RunPairTest) -> None:
        """See PairTests."""
        self.ordered.append(wanted.id)

    def cancel(self, why: str) -> None:
        """See PairTests."""
        self.ordered.append(f"cancel: {why}")
