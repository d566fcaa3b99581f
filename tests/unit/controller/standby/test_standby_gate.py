"""Which calls a standby answers: those that the journal alone answers, and no order."""

from everstep_controller.api.standby_gate import ANSWERED
from everstep_proto.generated import admin_pb2

# Agents are asked, or what they have told of late is shown.
_ASK_AGENTS = {
    "GetSamples",
    "GetSlowness",
    "GetSnapshots",
    "InspectJob",
    "ListCopies",
    "ReadLogs",
}
# Only who sends them knows how they fare.
_OF_THE_ACTIVE = {"ListWebhooks"}


def test_every_question_to_the_journal_is_answered_and_nothing_else() -> None:
    service = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
    questions = {
        method.name
        for method in service.methods
        if "operator" not in method.input_type.fields_by_name
    }
    orders = {method.name for method in service.methods} - questions
    assert not ANSWERED & orders
    assert questions - _ASK_AGENTS - _OF_THE_ACTIVE - {"TestWebhook"} == ANSWERED
