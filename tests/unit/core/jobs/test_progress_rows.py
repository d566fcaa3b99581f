from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common.reports import PauseKind, StepPause
from everstep_controller.core.jobs.progress_rows import (
    ROW_NS,
    ProgressRow,
    ProgressRows,
    ReportedSteps,
    Reporters,
)
from everstep_controller.core.model.node import Origin

NODES = ("a", "b", "c")
_US = 1000


@dataclass
class Cluster:
    """One job on three nodes, and the sequences of their outboxes."""

    running: bool = True
    generation: int = 1
    telling: tuple[str, ...] = NODES
    sequences: dict[str, int] = field(default_factory=dict)
    progress: ProgressRows = field(init=False)

    def __post_init__(self) -> None:
        self.progress = ProgressRows(self._members)

    def _members(self, job: str) -> Reporters | None:
        if job != "train":
            return None
        silent = lambda name: name not in self.telling  # noqa: E731
        return Reporters(self.generation, NODES, self.running, silent)

    def report(
        self, node: str, *steps: int, generation: int = 1, job: str = "train"
    ) -> list[ProgressRow]:
        self.sequences[node] = self.sequences.get(node, 0) + 1
        origin = Origin(node, f"box-{node}", self.sequences[node])
        ends = tuple(_US * (step * 100 + NODES.index(node)) for step in steps)
        stalls = tuple(_US * NODES.index(node) for _ in steps)
        return self.progress.add(ReportedSteps(job, generation, steps[0], ends, stalls, 0, origin))


def steps_of(rows: list[ProgressRow]) -> list[int]:
    return [
        row.event.first_step + offset for row in rows for offset in range(len(row.event.end_ns))
    ]


def test_a_step_is_complete_when_its_slowest_node_has_reported_it() -> None:
    cluster = Cluster()
    for node in NODES:
        assert cluster.report(node, 5, 6) == []
    (row,) = cluster.progress.tick(ROW_NS)
    assert (row.event.first_step, row.event.end_ns, row.event.stall_ns) == (
        5,
        (502 * _US, 602 * _US),
        (2 * _US, 2 * _US),
    )
    assert {origin.node for origin in row.origins} == set(NODES)


def test_a_step_that_was_seen_in_the_output_of_one_rank_waits_for_no_other_node() -> None:
    cluster = Cluster()
    origin = Origin("a", "box-a", 1)
    seen = ReportedSteps("train", 1, 5, (500 * _US, 600 * _US), (0, 0), 0, origin, of_job=True)
    assert cluster.progress.add(seen) == []
    (row,) = cluster.progress.tick(ROW_NS)
    assert (row.event.first_step, row.event.end_ns) == (5, (500 * _US, 600 * _US))
    assert list(row.origins) == [origin]


def test_a_running_job_writes_one_row_a_second() -> None:
    cluster = Cluster()
    for step in range(50):
        for node in NODES:
            assert cluster.report(node, step) == []
    assert cluster.progress.tick(ROW_NS - 1) == []
    assert steps_of(cluster.progress.tick(ROW_NS)) == list(range(50))


def test_a_job_that_does_not_run_yet_shows_its_first_step_at_once() -> None:
    cluster = Cluster(running=False)
    assert cluster.report("a", 0) == []
    assert cluster.report("b", 0) == []
    assert steps_of(cluster.report("c", 0)) == [0]


def test_what_all_have_reported_is_written_before_a_nodes_next_record() -> None:
    cluster = Cluster()
    cluster.report("a", 7)
    cluster.report("b", 7, 8)
    cluster.report("c", 7)
    (row,) = cluster.progress.flush_node("a")
    assert steps_of([row]) == [7]
    assert {origin.node for origin in row.origins} == {"a", "c"}


def test_a_step_that_a_dying_rank_never_finished_is_not_told_as_made() -> None:
    cluster = Cluster()
    for node in ("a", "b"):
        cluster.report(node, 7, 8)
    cluster.report("c", 7)
    # The death of c's rank is the next record; the job goes back to step 7, and repeats nothing.
    rows = cluster.progress.flush_node("c") + cluster.progress.flush_node("a")
    assert steps_of(rows) == [7]
    assert sorted(origin.node for row in rows for origin in row.origins) == ["a", "c"]


def test_a_step_that_waited_is_written_once_the_last_node_tells_it() -> None:
    cluster = Cluster()
    cluster.report("a", 7)
    (row,) = cluster.progress.flush_node("a")
    assert row.empty
    cluster.report("b", 7)
    cluster.report("c", 7)
    (row,) = cluster.progress.flush_node("b")
    assert (row.event.first_step, row.event.end_ns) == (7, (702 * _US,))


def test_a_node_that_is_away_keeps_no_step_waiting() -> None:
    cluster = Cluster()
    cluster.report("a", 7)
    cluster.report("b", 7, 8)
    cluster.telling = ("b",)
    assert steps_of(cluster.progress.flush_node("b")) == [7, 8]


def test_a_step_that_is_written_is_not_written_again() -> None:
    cluster = Cluster(telling=("a",))
    cluster.report("a", 7)
    cluster.progress.flush("train")
    cluster.report("b", 7)
    (row,) = cluster.progress.flush("train")
    assert row.empty
    assert [origin.node for origin in row.origins] == ["b"]


def test_a_row_that_could_not_be_journaled_is_taken_again() -> None:
    cluster = Cluster(telling=("a",))
    cluster.report("a", 7, 8)
    (row,) = cluster.progress.flush("train")
    cluster.progress.not_written(row.event)
    cluster.report("a", 7, 8)
    assert steps_of(cluster.progress.flush("train")) == [7, 8]


def test_a_new_generation_starts_its_steps_anew() -> None:
    cluster = Cluster()
    cluster.report("a", 7, 8)
    cluster.generation = 2
    rows = cluster.report("a", 6, generation=2)
    assert [(row.event.generation, steps_of([row])) for row in rows] == [(1, [7, 8])]
    cluster.telling = ("a",)
    assert steps_of(cluster.progress.flush("train")) == [6]


def test_a_late_word_of_an_older_generation_takes_no_step_from_the_one_that_counts() -> None:
    cluster = Cluster(generation=2)
    cluster.report("a", 7, generation=2)
    (late,) = cluster.report("b", 9)
    assert (late.event.generation, steps_of([late])) == (1, [9])
    assert [origin.node for origin in late.origins] == ["b"]
    for node in ("b", "c"):
        cluster.report(node, 7, generation=2)
    (row,) = cluster.progress.tick(ROW_NS)
    assert (row.event.generation, row.event.end_ns) == (2, (702 * _US,))
    assert sorted(origin.node for origin in row.origins) == ["a", "b", "c"]


def test_a_node_that_is_back_is_waited_for_again_though_others_came_later() -> None:
    cluster = Cluster(running=False, telling=("b", "c"))
    assert cluster.report("b", 7) == []
    cluster.telling = NODES
    assert cluster.report("c", 7) == []
    assert steps_of(cluster.report("a", 7)) == [7]


def test_a_crowd_of_members_is_no_member_that_says_nothing() -> None:
    nodes = [f"n{number:03}" for number in range(300)]
    progress = ProgressRows(lambda _: Reporters(1, nodes, running=True))
    for node in nodes[:-1]:
        progress.add(ReportedSteps("train", 1, 5, (5 * _US,), (0,), 0, Origin(node, node, 1)))
    assert progress.tick(ROW_NS) == []
    last = Origin(nodes[-1], "last", 1)
    progress.add(ReportedSteps("train", 1, 5, (9 * _US,), (0,), 0, last))
    (row,) = progress.tick(2 * ROW_NS)
    assert (row.event.end_ns, len(row.origins)) == ((9 * _US,), 300)


def test_rows_that_share_a_node_come_in_the_order_of_its_records() -> None:
    cluster = Cluster()
    cluster.report("a", 1)
    rows = cluster.report("a", 1, job="other")
    sequences = [origin.sequence for row in rows for origin in row.origins]
    assert sequences == [1, 2]


def test_a_member_that_says_nothing_does_not_keep_the_others_waiting() -> None:
    cluster = Cluster()
    for step in range(300):
        cluster.report("a", step)
    (row,) = cluster.progress.tick(ROW_NS)
    assert len(row.origins) == 300


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from((*NODES, "tick", "flush")), st.integers(1, 4))))
def test_every_step_and_record_is_written_once_in_any_schedule(
    schedule: list[tuple[str, int]],
) -> None:
    cluster = Cluster()
    reached: dict[str, int] = dict.fromkeys(NODES, 0)
    rows: list[ProgressRow] = []
    now_ns = 0
    for who, count in schedule:
        now_ns += ROW_NS // 2
        if who == "tick":
            rows += cluster.progress.tick(now_ns)
        elif who == "flush":
            rows += cluster.progress.flush_node("a")
        else:
            rows += cluster.report(who, *range(reached[who], reached[who] + count))
            reached[who] += count
    rows += cluster.progress.flush_all()
    made = steps_of(rows)
    assert made[: min(reached.values())] == list(range(min(reached.values())))
    cluster.telling = ()
    rows += cluster.progress.flush_all()

    assert steps_of(rows) == list(range(max(reached.values())))
    origins = [origin for row in rows for origin in row.origins]
    assert len(origins) == len(set(origins)) == sum(cluster.sequences.values())
    for node in NODES:
        mine = [origin.sequence for origin in origins if origin.node == node]
        assert mine == sorted(mine)


def test_the_longest_pause_of_any_member_is_in_the_row_of_its_step() -> None:
    cluster = Cluster()
    for place, node in enumerate(NODES):
        pauses = (StepPause(6, PauseKind.EVALUATION, (place + 1) * _US),)
        origin = Origin(node, f"box-{node}", 1)
        told = ReportedSteps("train", 1, 5, (_US, 2 * _US), (0, 0), 0, origin, pauses=pauses)
        assert cluster.progress.add(told) == []
    (row,) = cluster.progress.tick(ROW_NS)
    assert row.event.pauses == (StepPause(6, PauseKind.EVALUATION, 3 * _US),)
