"""Output of a job that the agent keeps: the newest of each rank, bounded, read again by number."""

from everstep_agent.jobs.job.output import JobOutput, OutputMemory, PastOutput
from everstep_common.launcher_messages import OutputSeen

_LINE = "x" * 2000
_BYTES_MAX = 1024 * 1024


def lines(output: JobOutput, rank: int | None = None, after: int = 0) -> list[str]:
    return [line for piece in output.read("q", rank, after).pieces for line in piece.lines]


def kept(output: JobOutput) -> int:
    """Return the size of all that is kept, by asking on and on."""
    size, after = 0, 1
    while pieces := output.read("q", None, after).pieces:
        size += sum(len(line) for piece in pieces for line in piece.lines)
        after = pieces[-1].sequence
    return size


def test_what_came_after_a_number_is_read_once_and_in_order() -> None:
    output = JobOutput(OutputMemory())
    output.add(OutputSeen(1, 0, ("a",)), 1000)
    output.add(OutputSeen(1, 1, ("b", "c")), 1000)
    first = output.read("q", None, 0)
    assert first.known
    assert [(piece.rank, piece.lines) for piece in first.pieces] == [(0, ("a",)), (1, ("b", "c"))]
    output.add(OutputSeen(2, 0, ("d",)), 1000)
    assert lines(output, after=first.newest) == ["d"]
    assert lines(output, rank=1) == ["b", "c"]
    assert output.read("q", None, 3).pieces == ()


def test_a_rank_that_floods_loses_its_own_oldest_lines_and_nobody_elses() -> None:
    output = JobOutput(OutputMemory())
    output.add(OutputSeen(1, 7, ("only word",)), 1000)
    for number in range(2000):
        output.add(OutputSeen(1, 0, (f"{number} {_LINE}",)), 1000)
    assert lines(output, rank=7) == ["only word"]
    assert lines(output, rank=0)[-1].startswith("1999 ")
    assert kept(output) < 300 * 1024


def test_ranks_without_number_take_no_more_memory_than_a_job_may() -> None:
    output = JobOutput(OutputMemory())
    for rank in range(20_000):
        output.add(OutputSeen(1, rank, (_LINE,)), 1000)
    assert kept(output) < _BYTES_MAX


def test_the_first_answer_is_the_newest_and_those_after_it_leave_nothing_out() -> None:
    output = JobOutput(OutputMemory())
    for number in range(400):
        output.add(OutputSeen(1, number % 4, (f"{number} {_LINE}",)), 1000)
    first = output.read("q", None, 0)
    assert first.pieces[-1].sequence == 400
    assert sum(len(line) for piece in first.pieces for line in piece.lines) < 300 * 1024
    found, after = [], 250
    while pieces := output.read("q", None, after).pieces:
        found += [piece.sequence for piece in pieces]
        after = found[-1]
    assert found == list(range(251, 401))


def test_who_asks_after_more_than_there_is_learns_that_it_was_counted_anew() -> None:
    output = JobOutput(OutputMemory())
    output.add(OutputSeen(1, 0, ("a",)), 1000)
    assert output.read("q", None, 900).newest == 1


def test_of_jobs_that_are_over_the_newest_few_are_kept_that_have_written_anything() -> None:
    past = PastOutput()
    for number in range(9):
        output = JobOutput(OutputMemory())
        if number != 7:
            output.add(OutputSeen(1, 0, (f"job {number}",)), 1000)
        past.keep(f"j-{number}", output)
    found = [one for number in range(9) if (one := past.of(f"j-{number}")) is not None]
    assert [lines(one) for one in found] == [["job 4"], ["job 5"], ["job 6"], ["job 8"]]


def test_a_user_with_jobs_without_number_takes_no_more_memory_and_nobody_elses() -> None:
    memory = OutputMemory()
    mine = JobOutput(memory)
    mine.add(OutputSeen(1, 0, ("mine",)), 1001)
    others = [JobOutput(memory) for _ in range(64)]
    for output in others:
        for rank in range(300):
            output.add(OutputSeen(1, rank, (_LINE,)), 1000)
    assert sum(map(kept, others)) < 9 * 1024 * 1024
    assert lines(mine) == ["mine"]
    for output in others:
        output.clear()
    assert memory.used(1000) == 0


def test_each_of_a_users_jobs_has_its_share_also_the_one_that_began_last() -> None:
    memory = OutputMemory()
    jobs = [JobOutput(memory) for _ in range(12)]
    for output in jobs:
        for number in range(800):
            output.add(OutputSeen(1, number % 8, (f"{number} {_LINE}",)), 1000)
    assert min(map(kept, jobs)) > 400 * 1024
    assert all(lines(output)[-1].startswith("799 ") for output in jobs)


def test_a_user_whose_jobs_end_all_the_time_takes_no_place_of_another_users() -> None:
    memory, past = OutputMemory(), PastOutput()
    for number in range(40):
        output = JobOutput(memory)
        output.add(OutputSeen(1, 0, (f"job {number}",)), 1001 if number == 3 else 1000)
        past.keep(f"j-{number}", output)
    kept_jobs = [number for number in range(40) if past.of(f"j-{number}") is not None]
    assert kept_jobs == [3, 36, 37, 38, 39]


def test_of_many_users_each_keeps_its_newest_job() -> None:
    memory, past = OutputMemory(), PastOutput()
    for number in range(48):
        output = JobOutput(memory)
        output.add(OutputSeen(1, 0, ("word",)), 1000 + number // 4)
        past.keep(f"j-{number}", output)
    found = {number // 4 for number in range(48) if past.of(f"j-{number}") is not None}
    assert found == set(range(12))


def test_what_another_user_wrote_before_under_the_name_is_gone() -> None:
    output = JobOutput(OutputMemory())
    output.add(OutputSeen(1, 0, ("theirs",)), 1000)
    output.add(OutputSeen(1, 0, ("mine",)), 1001)
    assert lines(output) == ["mine"]


def test_a_node_that_takes_part_in_a_job_again_and_again_keeps_its_newest_output_of_it() -> None:
    memory, past = OutputMemory(), PastOutput()
    for number in range(100):
        output = JobOutput(memory)
        output.add(OutputSeen(1, 0, (f"{number} {_LINE}",)), 1000)
        past.keep("j-1", output)
    found = past.of("j-1")
    assert found is not None
    assert lines(found)[0].startswith("99 ")
    assert memory.used(1000) < 3000
