"""The text for Prometheus, read back by its client library."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from everstep_agent.metrics.collector import prometheus_text


def _read_back(*families: Metric) -> list[Metric]:
    return list(text_string_to_metric_families(prometheus_text(families).decode()))


def test_a_family_is_read_back_as_it_was_written() -> None:
    up = GaugeMetricFamily("everstep_up", "Whether it is up.", value=1)
    errors = CounterMetricFamily("everstep_errors", "Errors, by port.", labels=["port"])
    errors.add_metric(["mlx5_0/1"], 2**60)
    errors.add_metric(["mlx5_1/1"], 0)
    assert _read_back(up, errors) == [up, errors]


def test_a_family_without_series_still_says_what_it_is() -> None:
    nothing = GaugeMetricFamily("everstep_gpus", "GPUs \\ of\nthis node.", labels=["pci"])
    (found,) = _read_back(nothing)
    assert (found.type, found.documentation) == ("gauge", "GPUs \\ of\nthis node.")


@given(label=st.text(), value=st.floats() | st.integers(0, 2**63))
def test_any_label_and_any_number_survive(label: str, value: float) -> None:
    family = GaugeMetricFamily("everstep_thing", "A thing.", labels=["name"])
    family.add_metric([label], value)
    text = prometheus_text([family]).decode()
    assert text.count("\n") == 3
    if not set(label) & set("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\\"):
        # The library's reader splits lines at these as well, and unescapes in another order.
        (sample,) = next(iter(text_string_to_metric_families(text))).samples
        assert sample.labels == {"name": label}
        assert sample.value == float(value) or math.isnan(value)
