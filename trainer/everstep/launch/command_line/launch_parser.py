"""Launch parser: every option of ``everstep run``, with its help."""

import argparse
from pathlib import Path

from everstep.launch.command_line.option_parser import OptionParser
from everstep.launch.command_line.snapshot_options import add_keep_options
from everstep.launch.command_line.standby_options import add_standby_options
from everstep.launch.command_line.torchrun_options import OPTIONS, add_torchrun_options
from everstep.launch.inspection.sources.ras_client import RasUse

_DESCRIPTION = """\
Start this node's part of a distributed training job, and keep the job stepping:
processes that fail are replaced, and training goes on from the newest step that
can be restored. It replaces torchrun: the same options, the same environment
for the script. Run the same command on every node of the job; nodes beyond the
maximum wait as spares."""
_EXAMPLES = """\
examples:
  this machine alone; agent and controller are started for the job:
    everstep run --standalone --nproc-per-node 8 train.py
  one node with an agent, the script as it is:
    everstep run --nproc-per-node 8 train.py --epochs 3
  at least 3 nodes and at most 4, a rank for each GPU; on every node:
    everstep run --job llama --nnodes 3:4 --nproc-per-node gpu train.py
  each node of a Slurm job:
    srun --ntasks-per-node=1 everstep run --nproc-per-node 8 -m my.train
  another interpreter, and steps in storage:
    everstep run --job llama --persist /shared/ckpt -- python3.12 train.py

three levels of use, each includes the one before:
  1. an unchanged script: it is restarted, and its steps are read from its
     output ("step 12", "Iteration 12/1000", progress bars; or
     --progress-pattern)
  2. everstep.step(n) after each step: exact times of every rank
  3. snapshots = everstep.snapshots({"model": model}); snapshots.restore() at
     the start and snapshots.snapshot(n) after each step: a failure costs the
     steps since the last snapshot, by default the step in flight as long as a
     snapshot stalls training for less than 1 % of a step

exit code: 0 the job succeeded, 1 it failed or was refused, 2 invalid command
line, 75 try again: another launcher of the job lives here, or this node's agent
has not come (--agent-wait), 128 + N ended by signal N. The first error of the
rank that failed first is the last thing shown."""


def launch_parser() -> OptionParser:
    """Return a parser that knows all options."""
    parser = OptionParser(
        prog="everstep run",
        usage="everstep run [options] train.py …\n       everstep run [options] -- COMMAND …",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.shortened = OPTIONS
    _add_job_options(parser)
    _add_node_options(parser)
    add_standby_options(parser)
    add_torchrun_options(parser)
    add_keep_options(parser)
    return parser


def _add_job_options(parser: OptionParser) -> None:
    add = parser.add_argument_group("the job").add_argument
    add(
        "--job",
        metavar="NAME",
        help="the job's name, the same on all of its nodes (default: --rdzv-id, Slurm's name and"
        " number, JOBSET_NAME, that of the PyTorchJob or TrainJob, or the script's)",
    )
    add(
        "--nnodes",
        metavar="MIN:MAX",
        help="number of nodes that train (default 1; under srun, all nodes of the step; in a"
        " PyTorchJob or TrainJob, its pods)",
    )
    add(
        "--queue",
        metavar="NAME",
        help="queue of whose time it is, for 'everstep ettr --by queue' (default: EVERSTEP_QUEUE,"
        " Slurm's partition)",
    )
    add(
        "--account",
        metavar="NAME",
        help="account of whose time it is (default: EVERSTEP_ACCOUNT, Slurm's account)",
    )
    add(
        "--nodes-per-replica",
        type=int,
        default=1,
        metavar="K",
        help="K nodes hold one copy of the model together (tensor, pipeline or sharded"
        " parallelism): the job runs on multiples of K (default 1)",
    )
    add(
        "--nproc-per-node",
        default="1",
        metavar="N|gpu|cpu|auto",
        help="ranks on each node: a number; one for each GPU (any vendor; xpu: Intel, npu: Ascend)"
        " or each processor; or auto: GPUs if there are any, else processors (default 1)",
    )
    add(
        "--policy",
        choices=("reform", "wait"),
        default="reform",
        help="without a spare: go on with fewer nodes, at least MIN (default), or wait for one",
    )
    add(
        "--max-restarts",
        default=10,
        type=int,
        metavar="N",
        help="restarts without a new step before the job fails (default 10)",
    )
    add(
        "--token-file",
        type=Path,
        metavar="F",
        help="file with the job's secret (created if absent)",
    )


def _add_node_options(parser: OptionParser) -> None:
    add = parser.add_argument_group("this node").add_argument
    add("--socket", metavar="PATH", help="the agent's socket (default: EVERSTEP_SOCKET)")
    add(
        "--agent-wait",
        default=60.0,
        type=float,
        metavar="SECONDS",
        help="how long to wait for this node's agent where one is to be expected: its unit or the"
        " folder of its socket is there, or Slurm or Kubernetes started the launcher (default 60;"
        " elsewhere it does not wait)",
    )
    add(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="folder for the files of --redirects and --tee: DIR/gen-G/rank-R.out and .err",
    )
    add("--logs", type=Path, metavar="DIR", help="the same as --log-dir DIR --tee 3")
    add(
        "--grace",
        type=float,
        metavar="SECONDS",
        help="seconds from SIGTERM or Ctrl-C to SIGKILL: in that time the last step is saved, and"
        " ranks end (default: Slurm's KillWait, or what --signal=TERM@SECONDS leaves; in Kubernetes"
        " 30; else 10)",
    )
    add(
        "--on-sigterm",
        choices=("end", "leave"),
        default="end",
        help="on SIGTERM, end the job (default), or leave it with this node only, so that a spare"
        " takes its place: for Kubernetes, which ends pods one by one",
    )
    add(
        "--nccl-ras",
        choices=tuple(one.value for one in RasUse),
        default=RasUse.AUTO.value,
        help="ask NCCL RAS which ranks are missing when the job is stopped because it hung: from"
        " NCCL 2.29.2 on (default), also of older versions, which may crash a job that still runs,"
        " or never",
    )
    add(
        "--progress-pattern",
        action="append",
        metavar="REGEX",
        help="regular expression for lines of output that report a completed step; its first group,"
        " or the one named 'step', is the number; 'none' reads no output (default: the formats of"
        " common trainers)",
    )
