"""What the agent is told of the shards does not depend on what was remembered."""

from dataclasses import replace

from everstep.copy_engine.views import ShardView
from everstep.saving.step_saving import Layout
from everstep.state.plain import PlainCapture


def views(*sizes: int) -> tuple[ShardView, ...]:
    return PlainCapture({f"s{index}": bytearray(size) for index, size in enumerate(sizes)}).views()


def test_a_shard_that_grows_moves_those_behind_it() -> None:
    layout, before = Layout(), views(5000, 1, 1)
    layout.of(before)
    grown = (replace(before[0], size_bytes=9000), before[1], before[2])
    for shards in (grown, grown[1:], before, (before[1], before[0], before[2])):
        assert layout.of(shards) == Layout().of(shards)


def test_what_has_not_changed_is_not_described_anew() -> None:
    layout, shards = Layout(), views(3, 0, 8192)
    first, _ = layout.of(shards)
    again, _ = layout.of((*shards[:2], replace(shards[2])))
    assert [a is b for a, b in zip(first, again, strict=True)] == [True, True, False]
