"""An agent of jobs only, for tests of its restart: what it says goes to standard output.

Argument: its runtime folder. It starts generation 1 of a job by itself, once.
"""

import asyncio
import os
import sys
from pathlib import Path

from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_proto.generated import fleet_pb2
from integration.vault_world import plan, settings


class _Printed:
    def record(self, record: fleet_pb2.Record) -> None:
        print("record", record.WhichOneof("body"), flush=True)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        copies = sorted((copy.generation, copy.rank, copy.step) for copy in report.copies)
        print("copies", copies, *report.bad_copies, flush=True)


async def main(folder: Path) -> None:
    jobs = NodeJobs(settings(folder), _Printed(), "node-1")
    async with asyncio.TaskGroup() as group:
        group.create_task(jobs.run())
        await jobs.ready.wait()
        order = fleet_pb2.Order(start_generation=plan(1), reason="test")
        jobs.on_order(order)  # the second time it is ignored
        print("ready", os.getpid(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
