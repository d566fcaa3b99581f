"""Ownership of jobs: what ranks write and do is shown to operators and to the job's user alone."""

import asyncio
import pwd

from everstep_controller.core.model.job import JobRecord
from everstep_proto.tls import Identity, Role


class NotTheOwnerError(Exception):
    """A viewer asks for what ranks of somebody else's job write or do; one sentence."""


async def check_owner(who: Identity, job: JobRecord, what: str) -> None:
    """Raise NotTheOwnerError for who may not see ``what`` ("output") of a job."""
    # In a thread: whose login it is, a directory service may be asked.
    if not await asyncio.to_thread(may_read, who, job):
        raise NotTheOwnerError(
            f"{who.name} is {who.role.value}, and {job.name} is another user's (uid "
            f"{job.spec.uid}); its {what} is for its user and operators"
        )


def may_read(who: Identity, job: JobRecord) -> bool:
    """Return whether somebody may see what a job wrote: an operator, or its user by the login."""
    if who.role is Role.OPERATOR:
        return True
    try:
        return pwd.getpwnam(who.name).pw_uid == job.spec.uid
    except (KeyError, ValueError):
        return False
