"""Maintenance calls over gRPC: windows added, listed and cancelled, by MaintenanceDesk."""

# ruff: noqa: N802 - the names are those of admin.proto

from everstep_controller.api.callers import (
    OPERATORS,
    REASON_MAX,
    Context,
    allow,
    change,
    operator_of,
    read,
)
from everstep_controller.maintenance_desk import MaintenanceDesk
from everstep_proto.generated import admin_pb2


class MaintenanceCalls:
    """Maintenance calls: each checks who asks, calls one method of MaintenanceDesk, and answers."""

    def __init__(self, desk: MaintenanceDesk) -> None:
        self._maintenance = desk

    async def AddMaintenance(
        self, request: admin_pb2.AddMaintenanceRequest, context: Context
    ) -> admin_pb2.MaintenanceWindow:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        request.reason = request.reason[:REASON_MAX]
        return await change(context, lambda: self._maintenance.add(request, operator))

    async def ListMaintenance(
        self, request: admin_pb2.ListMaintenanceRequest, context: Context
    ) -> admin_pb2.ListMaintenanceReply:
        """See admin.proto."""
        return await read(context, lambda: self._maintenance.list(request))

    async def CancelMaintenance(
        self, request: admin_pb2.CancelMaintenanceRequest, context: Context
    ) -> admin_pb2.MaintenanceWindow:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        return await change(context, lambda: self._maintenance.cancel(request.window, operator))
