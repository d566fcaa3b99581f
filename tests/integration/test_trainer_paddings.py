"""A state whose shards move within their slots: nothing old stays between them, all is stored."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from everstep_common.launcher_messages import Start
from integration.storage_world import storage_in
from integration.trainer_rank import brought
from integration.vault_world import launcher, lived, plan, running, settings

SHARDS = 300
# More than twice as many as there are slots, so that each is used with several layouts.
STEPS = 12


class Growing:
    """An object whose structure outgrows one page after the other, in front of its arrays."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        # Long and short ones: some pages further, short ones lie where long ones were.
        sizes = [4 if number % 7 else 4000 for number in range(SHARDS)]
        self.arrays = [np.full(size, 7, dtype=np.uint8) for size in sizes]

    def state_dict(self) -> Mapping[str, object]:
        return {"losses": self.losses, "arrays": self.arrays}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        raise NotImplementedError

    def change(self, step: int) -> None:
        """Double the list, past 512 numbers and past 1,024."""
        self.losses += [0.1234567890123456] * max(32, len(self.losses))
        del self.losses[2048:]


@lived
async def test_a_list_that_doubles_leaves_nothing_between_the_shards(tmp_path: Path) -> None:
    folder, state = tmp_path / "steps", Growing()
    async with (
        running(settings(tmp_path)) as node,
        launcher(node, storage=storage_in(folder)) as control,
    ):
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        description = await brought(node, folder, {"it": state}, state.change, STEPS)
        assert len(description.entries) > SHARDS
        assert description.gaps == ()
        assert not node.outlet.bad
