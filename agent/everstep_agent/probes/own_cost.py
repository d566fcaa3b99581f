"""Agent cost: CPU time and memory of the agent and its helper processes, through psutil."""

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class AgentCost:
    """CPU time in seconds, and memory that nobody shares, of the agent and its helpers."""

    processes: int
    cpu_s: float
    private_bytes: int


class OwnCost:
    """Cost of this process and its children. A helper that ended keeps its CPU time in it."""

    def __init__(self, process: psutil.Process | None = None) -> None:
        self._self = process or psutil.Process()

    def read(self) -> AgentCost:
        """Read once. Raises OSError when the kernel does not show this process."""
        try:
            tree = [self._self, *self._self.children(recursive=True)]
        except psutil.Error as error:
            raise OSError(str(error)) from error
        alive = [cost for process in tree if (cost := _cost(process)) is not None]
        own = self._self.cpu_times()
        ended_s = own.children_user + own.children_system
        return AgentCost(
            processes=len(alive),
            cpu_s=sum(cpu_s for cpu_s, _ in alive) + ended_s,
            private_bytes=sum(private for _, private in alive),
        )


def _cost(process: psutil.Process) -> tuple[float, int] | None:
    try:
        with process.oneshot():
            cpu, memory = process.cpu_times(), process.memory_info()
    except psutil.Error:
        return None
    # Shared memory is that of snapshots, or of libraries that other processes use as well.
    return cpu.user + cpu.system, max(0, memory.rss - memory.shared)
