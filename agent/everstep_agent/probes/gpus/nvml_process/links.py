"""NVLinks of one GPU: states and error counters, in as few driver calls as possible."""

from collections.abc import Mapping

from everstep_agent.probes.gpus.nvml_process.calls import Calls, Field

Values = dict[str, object]

# NVML_FI_DEV_NVLINK_LINK_COUNT, and NVML_NVLINK_MAX_LINKS of nvml.h.
_LINK_COUNT = 91
_LINKS_MAX = 36
# NVML_FI_DEV_NVLINK_…, asked with the link as their scope, and their names in NvlinkReading.
_SCOPED = {
    215: "recovery_events",
    295: "retry_blocks",
    208: "receive_errors",
    161: "replays",
    162: "recoveries",
    163: "crc",
}
# Fields of their own for each of the first links, on drivers without the scoped ones.
_LANE_REPLAYS, _LANE_RECOVERIES = range(46, 52), range(53, 59)
# nvmlNvLinkErrorCounter_t, for links that have no field at all.
_LEGACY = {"replays": 0, "recoveries": 1, "crc": 2}


class Nvlinks:
    """NVLinks of a GPU; learns at the first reading which counters this GPU has."""

    def __init__(self, calls: Calls, handle: object) -> None:
        self._calls = calls
        self._handle = handle
        self._count: int | None = None
        self._scoped: tuple[int, ...] = ()
        self._lanes = False

    def read(self) -> list[Values]:
        """Return the fields of NvlinkReading, link by link. Raises GoneError."""
        if self._count is None:
            self._count = self._learn()
        states = [self._state(link) for link in range(self._count)]
        scoped = [(field, link) for link in range(self._count) for field in self._scoped]
        lanes = [*_LANE_REPLAYS, *_LANE_RECOVERIES] if self._lanes else []
        values = self._calls.fields(self._handle, [*scoped, *lanes])
        return [
            {"link": link, "active": state, **self._counters(link, values)}
            for link, state in enumerate(states)
        ]

    def _learn(self) -> int:
        """Return the number of links, having found which counters are answered."""
        calls, handle = self._calls, self._handle
        count = calls.fields(handle, [_LINK_COUNT]).get(_LINK_COUNT)
        if count is None:
            # Drivers before 450 give no number of links: the first without a state ends the list.
            states = (self._state(link) for link in range(_LINKS_MAX))
            count = next((link for link, state in enumerate(states) if state is None), _LINKS_MAX)
        if count:
            answered = calls.fields(handle, [(field, 0) for field in _SCOPED])
            self._scoped = tuple(field for field in _SCOPED if (field, 0) in answered)
            self._lanes = not self._scoped and bool(calls.fields(handle, [_LANE_REPLAYS[0]]))
        return min(count, _LINKS_MAX)

    def _state(self, link: int) -> bool | None:
        state = self._calls.number("nvmlDeviceGetNvLinkState", self._handle, link)
        return None if state is None else bool(state)

    def _counters(self, link: int, values: Mapping[Field, int]) -> Values:
        if self._scoped:
            return {_SCOPED[field]: values.get((field, link)) for field in self._scoped}
        if self._lanes and link < len(_LANE_REPLAYS):
            return {
                "replays": values.get(_LANE_REPLAYS[link]),
                "recoveries": values.get(_LANE_RECOVERIES[link]),
            }
        legacy = "nvmlDeviceGetNvLinkErrorCounter"
        return {
            name: self._calls.number(legacy, self._handle, link, counter)
            for name, counter in _LEGACY.items()
        }
