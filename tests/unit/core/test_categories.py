"""The examples in the table of the ledger's categories hold: each row brings its own."""

import doctest

from everstep_controller.core.accounting import categories


def test_every_example_of_where_time_goes_holds() -> None:
    failed, tried = doctest.testmod(categories)
    assert failed == 0, "see the standard output for the example that failed"
    assert tried >= 3
