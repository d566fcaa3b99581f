"""An agent without root for tests of storage: writes a copy as another user, says what came of it.

Arguments: folder, user id; ``wait`` to go on waiting with its storage process, or ``close`` to end
it after a line of standard input.
"""

import asyncio
import os
import sys
from pathlib import Path

from everstep_agent.storage.worker.messages import CopyWritten
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageError
from everstep_agent.vault.memory.region import allocate_region
from integration.storage_files import content, order


def _rights_of(pid: int | None) -> list[str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return [line for line in status.splitlines() if line[:4] in ("Uid:", "CapE", "CapP")]


async def main(folder: str, uid: int) -> None:
    workers = StorageWorkerPool(folder, JobUser(uid, uid), 20.0, 1)
    region = allocate_region(len(content(3)), "everstep-test")
    with region.writable() as view:
        view[: len(content(3))] = content(3)
    try:
        await workers.ask(order(folder, 1, 3), CopyWritten, [region.open_read_only()])
        print(workers.idle_pid, *_rights_of(workers.idle_pid), flush=True)
        if sys.argv[3:] == ["wait"]:
            await asyncio.Event().wait()
        if sys.argv[3:] == ["close"]:
            await asyncio.to_thread(sys.stdin.readline)
    except StorageError as error:
        print(error)
    await workers.close()


if __name__ == "__main__":
    os.umask(0o022)
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
