"""Pods of a Kubernetes cluster: its API server says whose a token is, to the driver's client."""

import logging
from collections.abc import Sequence

from everstep_controller.drivers.kubernetes.api_server import ApiError, ApiServer
from everstep_controller.drivers.kubernetes.pod_identity import NotVouchedError, PodReviewer
from everstep_controller.enrolment.pods import PodRefusedError, VouchedPod

logger = logging.getLogger(__name__)


class KubernetesPods:
    """PodVoucher of one cluster."""

    def __init__(self, server: ApiServer, accounts: Sequence[str]) -> None:
        self._reviewer = PodReviewer(server, accounts)

    async def pod(self, token: str) -> VouchedPod:
        """See PodVoucher."""
        try:
            found = await self._reviewer.identity(token)
        except NotVouchedError as error:
            raise PodRefusedError(str(error)) from error
        except ApiError as error:
            logger.warning("a pod cannot enrol: %s", error)
            raise PodRefusedError(f"the controller cannot ask Kubernetes: {error}") from error
        return VouchedPod(str(found), found.uid, found.node)
