"""Restored random state, kept until the first step: frameworks draw numbers while they start."""

from everstep.state.objects.random_state import RandomState


class RestoredRandomState:
    """Random state that was restored, until it is given back."""

    def __init__(self) -> None:
        self._held: dict[str, object] | None = None

    def hold(self) -> None:
        """Keep the random state of this moment."""
        self._held = RandomState().state_dict()

    def give_back(self) -> None:
        """Set it again, once; a torch DataLoader has drawn its seed from it meanwhile."""
        held, self._held = self._held, None
        if held is not None:
            RandomState().load_state_dict(held)
