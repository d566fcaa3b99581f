"""Steps that a launcher sees in the output of ranks, and tells its agent."""

from everstep.launch.generation import SeenSteps
from everstep_common.launcher_messages import StepSeen


class _Agent:
    def __init__(self) -> None:
        self.told: list[StepSeen] = []

    def tell(self, message: object) -> None:
        assert isinstance(message, StepSeen)
        self.told.append(message)


def test_each_step_is_told_with_its_time_however_fast_they_come() -> None:
    agent = _Agent()
    steps = SeenSteps(agent.tell)
    steps.begin(3)
    for step in range(40):
        steps.seen(0, step)
        steps.seen(1, step)  # another rank prints it as well
    steps.flush()
    assert [(one.generation, one.step) for one in agent.told] == [(3, step) for step in range(40)]
    times = [one.at_boot_ns for one in agent.told]
    assert times == sorted(times)


def test_the_newest_step_of_each_rank_is_kept_whoever_printed_first() -> None:
    steps = SeenSteps(_Agent().tell)
    steps.begin(1)
    for rank, step in ((0, 3), (1, 2), (0, 4), (1, 1)):
        steps.seen(rank, step)
    assert steps.of_ranks == {0: 4, 1: 2}
    steps.begin(2)
    assert steps.of_ranks == {}


def test_of_more_than_anybody_trains_the_newest_are_told() -> None:
    agent = _Agent()
    steps = SeenSteps(agent.tell)
    steps.begin(1)
    for step in range(100_000):
        steps.seen(0, step)
    steps.flush()
    assert agent.told[-1].step == 99_999
    assert len(agent.told) < 100_000


def test_the_next_generation_begins_with_nothing_of_the_one_before() -> None:
    agent = _Agent()
    steps = SeenSteps(agent.tell)
    steps.begin(1)
    for step in range(9):
        steps.seen(0, step)
    steps.begin(2)
    steps.flush()
    steps.seen(0, 0)
    steps.flush()
    assert agent.told[-1] == StepSeen(2, 0, agent.told[-1].at_boot_ns)
    assert [one.generation for one in agent.told].count(2) == 1
