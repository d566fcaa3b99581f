"""Who makes the others of a job wait, as it is answered: who, or nobody, or that nothing tells."""

from dataclasses import replace

from everstep_controller.api.admin.ranks import slowness_of
from everstep_controller.core.model.job import JobState
from everstep_controller.core.planned.swaps import slow_sentences
from everstep_controller.slow.collective_arrival.collective_finding import (
    CollectiveFinding,
    LateRank,
    SeenLook,
)
from everstep_controller.slow.live import SURE_ROWS, LiveFinding
from unit.core.planned.test_slow_swap import CLOCKS, SlowStory, part
from unit.slow.test_live import Told


def test_without_a_rank_that_tells_it_is_said_what_a_script_has_to_tell() -> None:
    story = SlowStory().begin()
    told = slowness_of(story.core.state, story.job, LiveFinding(ranks=2))
    assert told.sentence == "Nobody can be judged: no rank tells how long it works itself"
    assert any("everstep.waiting()" in one for one in told.blind)
    assert (told.ranks, told.telling, list(told.slow)) == (2, 0, [])


def test_who_is_slow_is_told_with_what_its_agent_found_also_after_a_restart() -> None:
    story = SlowStory().begin()
    story.find("n1", CLOCKS)
    story.judge(part())
    told = slowness_of(story.core.state, story.job, LiveFinding(ranks=2, telling=2))
    (line,) = told.slow
    assert (line.kind, line.name, line.node, line.factor) == ("rank", "1", "n1", 1.3)
    assert "GpuClocksLow" in line.evidence
    assert told.sentence == "Rank 1 takes 1.30 times as long"
    assert "mode of SlowNode is advise" in told.plan
    newest = LiveFinding(parts=(replace(part(), factor=1.5),), rows=30)
    assert slowness_of(story.core.state, story.job, newest).slow[0].factor == 1.5


def test_nobody_is_slow_only_after_enough_comparisons_and_uneven_work_is_told() -> None:
    story = SlowStory().begin()
    ranks = Told(1)
    early = slowness_of(story.core.state, story.job, ranks.train(SURE_ROWS - 1))
    assert early.sentence.startswith("Nobody is known to be slow after")
    assert slowness_of(story.core.state, story.job, ranks.train(2)).sentence == "Nobody is slow"
    roles = {rank: f"stage {rank // 8}" for rank in range(32)}
    uneven = Told(3, nodes=16, roles=roles, slow=dict.fromkeys(range(24, 32), 1.4))
    told = slowness_of(story.core.state, story.job, uneven.train(30))
    assert [one.kind for one in told.imbalances] == ["stage"]
    assert told.sentence.startswith("Nobody is slow. Role stage 3 takes")


def test_where_half_of_a_small_job_is_slow_the_loss_and_the_node_to_look_at_are_told() -> None:
    """Two nodes, one of them slow from the first step on: nobody can tell which is as it should."""
    story = SlowStory().begin()
    job = Told(1, nodes=2, slow={0: 1.3, 1: 1.3})
    told = slowness_of(story.core.state, story.job, job.train(30))
    assert told.sentence.startswith(
        "Nobody can be named. 2 workers (0 (n0), 1 (n0)), all of node n0, take 1.30 times as long "
        "as the others, from the first step on; which of both is usual does not show"
    )
    (blind,) = [one for one in told.blind if "look at n0" in one]
    assert "ranks of n0 work 0.26 s a step, of n1 0.2 s" in blind
    assert "everstep check n0 --pair" in blind
    even = slowness_of(story.core.state, story.job, Told(2, nodes=2).train(30))
    assert even.sentence == "Nobody is slow"
    assert not any("look at" in one for one in even.blind)


def _seen(rank: int) -> SeenLook:
    late = LateRank(
        rank=rank, node="n1", group="dp", times=50, of=60, wait_ms=40.0, every_ms=240.0, factor=1.2,
        sentence=f"rank {rank} (n1) comes last to 50 of 60 collectives of dp",
    )  # fmt: skip
    found = CollectiveFinding(sentence="Rank 1 comes last", late=(late,), collectives=60, ranks=2)
    return SeenLook(found, at_ns=5)


def test_of_a_job_that_tells_nothing_the_look_at_its_collectives_is_the_answer() -> None:
    story = SlowStory().begin()
    told = slowness_of(story.core.state, story.job, LiveFinding(ranks=2), _seen(1), now_ns=8)
    assert told.sentence == "Rank 1 comes last"
    assert (told.collectives.age_ns, told.collectives.beside) == (3, "")
    assert [one.rank for one in told.collectives.late] == [1]
    assert not told.slow


def test_while_too_little_is_told_the_look_is_the_answer_where_it_names_somebody() -> None:
    story = SlowStory().begin()
    early = LiveFinding(ranks=2, telling=2, rows=3)
    told = slowness_of(story.core.state, story.job, early, _seen(1))
    assert told.sentence == "Rank 1 comes last"
    nobody = SeenLook(replace(_seen(1).finding, late=()), at_ns=5)
    told = slowness_of(story.core.state, story.job, early, nobody)
    assert told.sentence == "Nobody is known to be slow after 3 of 20 comparisons"


def test_before_its_ranks_make_steps_a_job_is_told_to_have_begun_and_no_more() -> None:
    story = SlowStory().begin()
    story.exit_rank("n0")
    story.stop_all()
    story.choose(None)
    assert story.job.state is JobState.STARTING
    told = slowness_of(story.core.state, story.job, LiveFinding(ranks=2))
    assert told.sentence == "j is starting: who makes it wait shows when its ranks make steps"
    assert not told.blind


def test_why_a_node_names_the_job_that_waits_for_it() -> None:
    story = SlowStory().begin()
    story.judge(part())
    state = story.core.state
    (sentence,) = slow_sentences(state, state.nodes["n1"])
    assert sentence.startswith("j waits for it: rank 1 takes 1.30 times as long (nothing is done")
    assert list(slow_sentences(state, state.nodes["n0"])) == []


def test_whether_the_look_and_what_ranks_tell_agree_is_told() -> None:
    story = SlowStory().begin()
    sure = LiveFinding(ranks=2, telling=2, rows=SURE_ROWS)
    told = slowness_of(story.core.state, story.job, sure, _seen(1))
    assert "as fast as its peers by what ranks tell" in told.collectives.beside
    story.judge(part())
    told = slowness_of(story.core.state, story.job, sure, _seen(1))
    assert "both agree" in told.collectives.beside
    assert told.sentence == "Rank 1 takes 1.30 times as long"
    nobody = SeenLook(replace(_seen(1).finding, late=()), at_ns=5)
    told = slowness_of(story.core.state, story.job, sure, nobody)
    assert "does not come last" in told.collectives.beside
