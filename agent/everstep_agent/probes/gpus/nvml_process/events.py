"""NVML events: Xids and memory errors that the driver reports unasked, awaited on threads."""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType

from everstep_agent.probes.gpus.nvml_process.calls import code_of
from everstep_agent.probes.gpus.nvml_process.gpu import Gpu

# nvmlEventType… of nvml.h.
_SINGLE, _DOUBLE, _XID = 0x1, 0x2, 0x8
_KINDS = {_SINGLE: "ecc_single", _DOUBLE: "ecc_double", _XID: "xid"}
# nvmlReturn_t.
_TIMEOUT = 10
# How long the driver waits for an event before the thread asks anew, in case the driver forgot it.
_WAIT_MS = 60_000
# Pause after a wait that failed: a lost GPU can make every wait fail at once.
_PAUSE_S = 1.0
# After so many events in a second the thread pauses: a GPU can correct 17,657 memory errors a
# second (DCGM issue 313), and counters show those.
_STORM, _STORM_PAUSE_S = 20, 60.0

Tell = Callable[[dict[str, object]], None]


def listen(library: ModuleType, gpus: Sequence[Gpu], tell: Tell) -> str:
    """Tell of events from now on; return why there are none, empty when there are.

    Corrected errors have a set of their own: a storm of them must not keep an Xid waiting.
    """
    sets = [_EventSet(library, gpus, kinds, tell) for kinds in (_XID | _DOUBLE, _SINGLE)]
    refused = [one.register() for one in sets]
    for one, why in zip(sets, refused, strict=True):
        if not why:
            threading.Thread(target=one.run, name="events", daemon=True).start()
    return refused[0]


class _EventSet:
    """Waits for events of some kinds of all GPUs that have them."""

    def __init__(self, library: ModuleType, gpus: Sequence[Gpu], kinds: int, tell: Tell) -> None:
        self._library = library
        self._gpus = gpus
        self._kinds = kinds
        self._tell = tell
        self._set: object = None
        self._second = 0
        self._told = 0

    def register(self) -> str:
        """Ask for the events; return why there are none, empty when there are."""
        nvml = self._library
        try:
            self._set = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            return str(error)
        refused, registered = "no GPU", False
        for gpu in self._gpus:
            try:
                kinds = nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle) & self._kinds
                nvml.nvmlDeviceRegisterEvents(gpu.handle, kinds, self._set)
                registered = registered or bool(kinds)
            except nvml.NVMLError as error:
                refused = str(error)
        return "" if registered else refused

    def run(self) -> None:
        """Wait and tell, for ever."""
        nvml = self._library
        while True:
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except nvml.NVMLError as error:
                if code_of(error) != _TIMEOUT:
                    time.sleep(_PAUSE_S)
                continue
            if kind := _KINDS.get(event.eventType):
                pci = next((g.pci for g in self._gpus if _same(g.handle, event.device)), "")
                self._tell({"event": {"pci": pci, "kind": kind, "data": event.eventData}})
            if self._kinds == _SINGLE and self._is_storm():
                nvml.nvmlEventSetFree(self._set)
                time.sleep(_STORM_PAUSE_S)
                self.register()

    def _is_storm(self) -> bool:
        second = int(time.monotonic())
        self._told = self._told + 1 if second == self._second else 1
        self._second = second
        return self._told >= _STORM


def _same(one: object, other: object) -> bool:
    """Return whether two handles are of the same GPU."""
    return _address(one) == _address(other)


def _address(handle: object) -> int | None:
    if not isinstance(handle, ctypes._Pointer):
        return None
    return ctypes.cast(handle, ctypes.c_void_p).value
