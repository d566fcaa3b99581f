"""What the agent is told of ranks that torchrun starts and stops."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from everstep.integrations.torchrun.generation import WatchedGeneration
from everstep.launch.processes.rank_failure import RankEnd
from everstep_common.launcher_messages import Start, Started
from everstep_common.reports import GenerationFinished, RankExited

_START = Start(
    generation=3,
    node_rank=0,
    node_count=1,
    first_rank=4,
    processes=2,
    world_size=8,
    master_address="127.0.0.1",
    master_port=1,
    restore_step=None,
    reason="a test",
)


@dataclass(slots=True)
class _Workers:
    processes: dict[int, int] = field(default_factory=dict)
    seen_by_torchrun: list[RankEnd] = field(default_factory=list)

    def begin(self, generation: int) -> None: ...
    def find_started(self) -> None: ...
    def kill(self) -> None: ...

    def running(self) -> dict[int, int]:
        return self.processes

    def missed(self) -> list[RankEnd]:
        return self.seen_by_torchrun


@dataclass(slots=True)
class _World:
    workers: _Workers
    told: list[object]
    generation: WatchedGeneration

    def kinds(self) -> list[type]:
        return [type(message) for message in self.told]


@pytest.fixture
def world() -> Iterator[_World]:
    workers, told = _Workers({4: 100, 5: 101}), list[object]()
    generation = WatchedGeneration(workers, told.append)
    generation.begin(_START)
    generation.report_started()
    workers.processes = {}
    yield _World(workers, told, generation)
    generation.port.release()


def _end(rank: int, code: int, at_boot_ns: int = 1) -> RankEnd:
    return RankEnd(rank=rank, code=code, core_dumped=False, at_boot_ns=at_boot_ns, last_lines=())


def test_a_node_is_done_when_its_last_rank_has_ended_well(world: _World) -> None:
    world.generation.rank_ended(_end(4, 0))
    assert world.kinds() == [Started]
    world.generation.rank_ended(_end(5, 0))
    assert world.kinds() == [Started, GenerationFinished]


def test_ranks_that_torchrun_ends_after_the_first_failure_are_no_failures(world: _World) -> None:
    world.generation.rank_ended(_end(5, 3))
    world.generation.rank_ended(_end(4, -signal.SIGTERM))
    world.generation.gone(told=False, succeeded=False)
    (exited,) = world.told[1:]
    assert isinstance(exited, RankExited)
    assert (exited.rank, exited.exit_code) == (5, 3)


def test_a_signal_that_torchrun_passes_on_is_no_failure(world: _World) -> None:
    world.generation.rank_ended(_end(4, -signal.SIGTERM))
    world.generation.gone(told=True, succeeded=False)
    assert world.kinds() == [Started]


def test_a_signal_that_only_a_rank_got_is_one(world: _World) -> None:
    world.generation.rank_ended(_end(4, -signal.SIGTERM))
    world.generation.gone(told=False, succeeded=False)
    assert world.kinds() == [Started, RankExited]


def test_of_ends_that_torchrun_saw_first_the_one_it_did_not_cause_is_told(world: _World) -> None:
    world.workers.seen_by_torchrun = [_end(4, -signal.SIGTERM), _end(5, -signal.SIGKILL, 2)]
    world.generation.gone(told=False, succeeded=False)
    exited = world.told[-1]
    assert isinstance(exited, RankExited)
    assert (exited.rank, exited.signal) == (5, signal.SIGKILL)


def test_well_ended_ranks_that_torchrun_saw_first_are_told_when_it_says_so(world: _World) -> None:
    world.generation.rank_ended(_end(4, 0))
    world.generation.gone(told=False, succeeded=True)
    assert world.kinds() == [Started, GenerationFinished]
