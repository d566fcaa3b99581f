"""Clock probe: what the kernel says of its own clock (adjtimex, read only)."""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

from everstep_agent.detectors.host.clock import ClockReading
from everstep_agent.probes.machine.kernel_files import text_of

# include/uapi/linux/timex.h
_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class Timex(ctypes.Structure):
    """struct timex of the C library, as far as it is read here, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


Adjtimex = Callable[[Timex], int]


def kernel_adjtimex(timex: Timex) -> int:
    """Ask the kernel; returns its clock state. Raises OSError."""
    state = int(_LIBC.adjtimex(ctypes.byref(timex)))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return state


_LIBC = ctypes.CDLL(None, use_errno=True)


def read_clock(sysfs: Path, adjtimex: Adjtimex = kernel_adjtimex) -> ClockReading:
    """Read once. Raises OSError, but not where a sandbox forbids the question."""
    source = text_of(sysfs / "devices/system/clocksource/clocksource0/current_clocksource") or ""
    timex = Timex()
    try:
        state = adjtimex(timex)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            return ClockReading(synchronized=None, source=source)
        raise
    units = 1e9 if timex.status & _STA_NANO else 1e6
    return ClockReading(
        synchronized=state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
        offset_s=timex.offset / units,
        max_error_s=timex.maxerror / 1e6,
        source=source,
    )
