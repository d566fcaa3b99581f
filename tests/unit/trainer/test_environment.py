"""What a training process is told of its job."""

from dataclasses import replace

import everstep
from everstep.launch.rank_environment import JobAccess, alone_with_device, rank_environment
from everstep.rank.environment import membership, world_size, world_size_wanted
from everstep_common.launcher_messages import Start


def start(restore_step: int | None) -> Start:
    return Start(
        generation=3,
        node_rank=1,
        node_count=2,
        first_rank=4,
        processes=4,
        world_size=8,
        master_address="10.0.0.1",
        master_port=29500,
        restore_step=restore_step,
        reason="",
    )


def test_what_the_launcher_writes_the_library_reads() -> None:
    access = JobAccess("llama", "/agent.sock", "secret", 5, 32)
    base = {"PATH": "/bin", "EVERSTEP_JOB_TOKEN": "secret"}
    environ = rank_environment(base, access, start(None), local_rank=2)
    member = membership(environ)
    assert member
    assert (member.job, member.generation, member.rank) == ("llama", 3, 6)
    assert (member.socket, member.token, member.starts_fresh) == ("/agent.sock", "secret", True)
    assert "EVERSTEP_JOB_TOKEN" not in environ
    assert environ["PATH"] == "/bin"
    assert environ["TORCHELASTIC_RESTART_COUNT"] == "2"
    again = membership(rank_environment(base, access, start(0), local_rank=0))
    assert again
    assert not again.starts_fresh
    assert again.agent_log == ""
    alone = replace(access, agent_log="/tmp/everstep-x/agent.log")
    member = membership(rank_environment(base, alone, start(0), local_rank=0))
    assert member
    assert member.agent_log == "/tmp/everstep-x/agent.log"


def test_a_script_on_fewer_ranks_knows_how_many_it_was_submitted_with() -> None:
    access = JobAccess("llama", "/agent.sock", "secret", 5, 32)
    environ = rank_environment({}, access, start(None), local_rank=2)
    assert (world_size(environ), world_size_wanted(environ)) == (8, 32)


def test_outside_a_job_the_size_is_as_wanted() -> None:
    run = everstep.init({"RANK": "1", "WORLD_SIZE": "3"})
    assert (run.world_size, run.world_size_wanted) == (3, 3)


def test_outside_a_job_everything_works_and_does_nothing() -> None:
    run = everstep.init({"EVERSTEP_SOCKET": "/for/the/launcher"})
    snapshots = run.snapshots({"a": bytearray(8)})
    assert (run.active, run.rank, run.world_size, run.generation) == (False, 0, 1, 0)
    assert snapshots.restore() is None
    assert run.restore_step is None
    assert not snapshots.snapshot(0)
    run.step(0)
    assert run.unsaved_steps == 0


def test_a_virtual_local_rank_sees_its_own_device_as_the_only_one() -> None:
    assert alone_with_device({}, 2) == {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "2"}
    chosen = {"CUDA_VISIBLE_DEVICES": "4, GPU-a"}
    assert alone_with_device(chosen, 1)["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert alone_with_device({"CUDA_VISIBLE_DEVICES": ""}, 1)["CUDA_VISIBLE_DEVICES"] == ""
