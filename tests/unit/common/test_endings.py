"""Reasons of ended jobs, where a program recognises them again."""

from everstep_common.endings import by_operator, by_user_on, kept_in_memory, without_memory


def test_a_step_that_only_memory_has_is_gone_with_the_jobs_own_agent() -> None:
    gone = "which was in memory only (--persist FOLDER keeps steps)"
    kept = kept_in_memory(33, "n0, n1 and 4 more", 0.5)
    assert kept == "after step 33, which stays in memory of n0, n1 and 4 more for 0.5 min"
    assert without_memory(f"{by_user_on('n0')} {kept}") == (
        f"{by_user_on('n0')} after step 33, {gone}"
    )
    by_ann = by_operator("ann", "for 30 min")
    assert without_memory(f"{by_ann} ({kept})") == f"{by_ann} (after step 33, {gone})"


def test_a_step_in_storage_and_a_job_without_steps_stay_what_they_are() -> None:
    for words in (by_user_on("n0"), f"{by_user_on('n0')} after step 3, which is in storage"):
        assert without_memory(words) == words
