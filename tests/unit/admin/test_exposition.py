from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kuvasz.admin import exposition


def test_a_family_is_what_prometheus_reads() -> None:
    text = exposition.family("a_total", "What.", "counter", ("x", "y"), [(("1", 'q"\\\n%s'), 2), (("2", ""), None)])
    assert text.startswith("# HELP a_total What.\n# TYPE a_total counter\n")
    ((sample,),) = (family.samples for family in text_string_to_metric_families(text))
    assert (sample.name, sample.labels, sample.value) == ("a_total", {"x": "1", "y": 'q"\\\n%s'}, 2.0)


def test_without_labels_it_is_a_number() -> None:
    assert exposition.family("a", "What.", "gauge", (), [((), 1.5e9)]).splitlines()[2:] == ["a 1500000000.0"]


def test_without_samples_it_is_told_all_the_same() -> None:
    assert exposition.family("a", "What.", "gauge", ("x",), []) == "# HELP a What.\n# TYPE a gauge\n"
