"""Slurm's programs, run for the driver: sinfo, scontrol and squeue, with the rights it has."""

import asyncio
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_common.credential_file import CredentialError, CredentialFile
from everstep_common.printable import printable
from everstep_controller.drivers.port import DriverError
from everstep_controller.drivers.program import FinishedProgram, finished_program

# Of a call's time, so much is left to end what hangs and to say so.
_LEFT_S = 2.0
# A slurmctld that takes over from another one, or is restarted, is back after 14 s (seen with
# SlurmctldTimeout=10): a call rides that out.
_AGAIN_S = 1.0
_PATIENCE_S = 20.0
_SHOWN_MAX = 300
# scontrol waits for each command's answer. Four of them have 1,000 updates done in 0.6 s, one in
# 1.5 s, eight in 0.6 s (22.05, two cores); for few commands one more is not worth its start.
_BESIDE_MAX, _LINES_MIN = 4, 16
_AWAY = (
    "unable to contact slurm controller",
    "connection refused",
    "socket timed out",
    "communication connection failure",
    "communication shutdown failure",
    "in standby mode",
    "zero bytes were transmitted",
    "unable to establish control machine address",
)
_DENIED = ("invalid user id", "access/permission denied", "not authorized")
_UNKNOWN_NODE = "invalid node name"
# What scontrol says of a node or a job that is not there; of a node on its standard output.
_ABSENT = ("not found", "invalid job id", _UNKNOWN_NODE)
# It is asked for to see what slurmctld refuses it for; no site has it.
_NO_NODE = "everstep-has-no-such-node"
_HANGS = (
    "no answer of {program} within the call's {seconds:g} s; type 'scontrol ping' where the "
    "controller runs"
)
_MISSING = (
    "{program} is not there; install Slurm's client programs (slurm-client) where the controller "
    "runs, or name their folder in drivers.slurm.bin_folder"
)
_RIGHTS = (
    "slurmctld does not let {name} drain nodes ({said}); type 'sacctmgr modify user {name} set "
    "adminlevel=Administrator' (Operator is not enough), or name the file of a token of SlurmUser "
    "in drivers.slurm.jwt_file; docs/slurm.md has both"
)


@dataclass(frozen=True, slots=True)
class SlurmAccess:
    """Where Slurm's programs and its configuration are, and by what slurmctld knows the driver."""

    bin_folder: Path
    conf_file: Path
    jwt_file: CredentialFile | None

    def program(self, name: str) -> str:
        """Return the path of a program, or its name where PATH finds it."""
        return name if self.bin_folder == Path() else str(self.bin_folder / name)

    def environ(self) -> Mapping[str, str]:
        """Return the environment of a program. Raises DriverError where the token cannot be read.

        Formats and the like that a site sets for people (SINFO_FORMAT, SLURM_TIME_FORMAT) are left
        out: what a program prints is read here.
        """
        kept = {"PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", "LD_LIBRARY_PATH"}
        found = {key: value for key, value in os.environ.items() if key in kept}
        found["LC_ALL"] = "C.UTF-8"
        if self.conf_file != Path():
            found["SLURM_CONF"] = str(self.conf_file)
        if self.jwt_file is not None:
            try:
                found["SLURM_JWT"] = self.jwt_file.read()
            except CredentialError as error:
                raise DriverError(f"drivers.slurm.jwt_file: {error}") from error
        return found


class SlurmCommands:
    """Slurm's programs; each run ends within the time of a driver's call, with its children."""

    def __init__(self, access: SlurmAccess, call_timeout_s: float) -> None:
        self._access = access
        self._timeout_s = max(call_timeout_s - _LEFT_S, call_timeout_s / 2)
        self._deadline_s = 0.0

    def begin_call(self) -> None:
        """Give the programs that follow the time of one call of the driver, all together."""
        self._deadline_s = asyncio.get_running_loop().time() + self._timeout_s

    async def sinfo(self, cluster: str, *words: str) -> str:
        """Return what sinfo prints. Raises DriverError, OSError."""
        done = await self._patiently("sinfo", _at(cluster, *words))
        if done.code:
            raise DriverError(failure_sentence("sinfo", done))
        return _text(done)

    async def squeue(self, cluster: str, *words: str) -> str:
        """Return what squeue prints. Raises DriverError, OSError."""
        done = await self._patiently("squeue", _at(cluster, *words))
        if done.code:
            raise DriverError(failure_sentence("squeue", done))
        return _text(done)

    async def show(self, cluster: str, *words: str) -> str:
        """Return what ``scontrol show`` prints; what is not there has no line.

        Raises DriverError where it fails for another reason: then nothing is known. OSError.
        """
        done = await self._once("scontrol", _at(cluster, "-o", "show", *words))
        said = done.errors.lower()
        if done.code and said.strip() and not any(word in said for word in _ABSENT):
            raise DriverError(failure_sentence("scontrol", done))
        return _text(done)

    async def scontrol(self, cluster: str, *words: str) -> FinishedProgram:
        """Return what came of scontrol. Raises DriverError, OSError."""
        return await self._once("scontrol", _at(cluster, *words))

    async def scontrol_lines(self, cluster: str, lines: Sequence[str]) -> list[FinishedProgram]:
        """Return what came of commands, one a line, which few scontrol read beside one another.

        Their order is lost. Raises DriverError, OSError.
        """
        count = max(1, min(_BESIDE_MAX, len(lines) // _LINES_MIN))
        runs = [
            asyncio.create_task(self._once("scontrol", _at(cluster), "".join(lines[at::count])))
            for at in range(count)
        ]
        try:
            return await asyncio.gather(*runs)
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)

    async def refused_rights(self, cluster: str) -> str:
        """Return why slurmctld refuses changes of nodes; empty where it takes them.

        It changes nothing: rights are looked at before the name of the node is.
        Raises DriverError where slurmctld tells neither, OSError.
        """
        words = ("update", f"nodename={_NO_NODE}", "state=drain", "reason=everstep")
        done = await self._patiently("scontrol", _at(cluster, *words))
        said = done.errors.lower()
        if _UNKNOWN_NODE in said:
            return ""
        return failure_sentence("scontrol", done)

    async def _patiently(self, program: str, words: Sequence[str]) -> FinishedProgram:
        """Run a program; once more, and again, while slurmctld is away for a moment."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(_PATIENCE_S, self._timeout_s * 2 / 3)
        away: FinishedProgram | None = None
        while True:
            try:
                done = await self._once(program, words)
            except DriverError:
                if away is None:
                    raise
                return away  # what it said first tells more than that it hangs at last
            if not done.code or not is_away(done.errors) or loop.time() > until_s:
                return done
            away = done
            await asyncio.sleep(_AGAIN_S)

    async def _once(self, program: str, words: Sequence[str], lines: str = "") -> FinishedProgram:
        argv = (self._access.program(program), *words)
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await finished_program(argv, lines.encode(), self._access.environ())
        except FileNotFoundError as error:
            raise DriverError(_MISSING.format(program=argv[0])) from error
        except TimeoutError as error:
            said = _HANGS.format(program=program, seconds=self._timeout_s)
            raise DriverError(said) from error


def is_away(errors: str) -> bool:
    """Return whether slurmctld did not answer: it is started again, or another one takes over."""
    said = errors.lower()
    return any(word in said for word in _AWAY)


def is_denied(errors: str) -> bool:
    """Return whether slurmctld refused a change for want of rights."""
    said = errors.lower()
    return any(word in said for word in _DENIED)


def failure_sentence(program: str, done: FinishedProgram) -> str:
    """Return why a program failed, and what to type."""
    lines = [line for line in done.errors.strip().splitlines() if line.strip()]
    said = printable(lines[-1])[:_SHOWN_MAX] if lines else f"exit code {done.code}"
    if is_denied(done.errors):
        return _RIGHTS.format(name=_user_name(), said=said)
    if is_away(done.errors):
        return f"slurmctld does not answer: {said}; type 'scontrol ping' where the controller runs"
    if "authentication error" in done.errors.lower():
        return (
            f"slurmctld does not know the controller: {said}; write a new token to "
            "drivers.slurm.jwt_file ('scontrol token'), or compare munge's keys"
        )
    if "munge" in done.errors.lower():
        return (
            f"{program} fails at munge: {said}; type 'munge -n | unmunge' where the controller runs"
        )
    return f"{program} failed: {said}; type '{program}' where the controller runs"


def _user_name() -> str:
    """Return who slurmctld takes the controller for, where munge tells it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _at(cluster: str, *words: str) -> tuple[str, ...]:
    return ("-M", cluster, *words) if cluster else words


def _text(done: FinishedProgram) -> str:
    return done.answer.decode(errors="replace")
