"""AdamW over many small parameters is brought to storage, whatever grows in front of it."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from everstep_common.launcher_messages import Start
from integration.storage_world import storage_in
from integration.trainer_rank import brought
from integration.vault_world import launcher, lived, plan, running, settings

PARAMETERS = 300
STEPS = 10


class Losses:
    """A list that a script keeps in its state."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def state_dict(self) -> Mapping[str, object]:
        return {"values": self.values}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        raise NotImplementedError


@lived
async def test_adamw_with_300_parameters_and_a_list_that_grows_are_stored(tmp_path: Path) -> None:
    folder, losses = tmp_path / "steps", Losses()
    # Of several sizes, each much less than a page.
    model = nn.ParameterList(nn.Parameter(torch.ones(1 + 97 * (n % 7))) for n in range(PARAMETERS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def change(step: int) -> None:
        optimizer.zero_grad()
        loss = torch.stack([parameter.square().sum() for parameter in model]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.values += [0.1234567890123456] * max(100, len(losses.values))
        del losses.values[3000:]

    state = {"losses": losses, "model": model, "optimizer": optimizer}
    async with (
        running(settings(tmp_path)) as node,
        launcher(node, storage=storage_in(folder)) as control,
    ):
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        description = await brought(node, folder, state, change, STEPS)
        assert sum(entry.size_bytes == 4 for entry in description.entries) >= PARAMETERS
        assert description.gaps == ()
        assert not node.outlet.bad
