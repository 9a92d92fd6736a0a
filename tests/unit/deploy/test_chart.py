"""The chart: it is lint-free and renders what the schemas of Kubernetes take, where helm and those are at hand.

Elsewhere it is read. A cluster has not seen it.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from kuvasz.config import load
from tests.support import deploy_tools

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "kuvasz"
EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))

needs_helm = deploy_tools.needs_helm

#: The oldest and the newest of Kubernetes that the chart is looked at for.
KUBERNETES = ("1.29", "1.33", "1.37")

#: What is given by arguments and not by a file of `ci/`: docs/platform.md has most of them.
RELEASES = {
    **{file.stem: ("--values", str(file)) for file in EXAMPLES},
    "standbys": ("--set", "existingMap=map,standbys=2,persistence.size=1Gi", "--set", "extraArgs={--role=read}"),
    "group": ("--set", "existingMap=blue-map"),
    "claimed": ("--set", "existingMap=map,persistence.existingClaim=mine"),
}


def parsed(file: Path) -> Any:
    return YAML(typ="safe", pure=True).load(file.read_text("utf-8"))


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return deploy_tools.run("helm", *arguments, folder=CHART)


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A helm that was built by `go install` knows of no Kubernetes newer than 1.20.
    return helm("template", "shop", ".", "--kube-version", "1.33.0", *arguments)


def rendered(*arguments: str) -> dict[str, dict[str, Any]]:
    """Return what a release called shop is made of: kind, or kind and name where there are two -> manifest."""
    done = template("--namespace", "data", *arguments)
    assert done.returncode == 0, done.stderr
    found = [one for one in YAML(typ="safe", pure=True).load_all(done.stdout) if one]
    return {f"{one['kind']} {one['metadata']['name']}": one for one in found}


def paths(value: object, place: str = "") -> set[str]:
    """Return the places of all mappings' keys."""
    if not isinstance(value, dict):
        return set()
    return {f"{place}.{key}" for key in value} | {
        path for key, inner in value.items() for path in paths(inner, f"{place}.{key}")
    }


def test_its_version_is_that_of_kuvasz() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert parsed(CHART / "Chart.yaml")["appVersion"] == project["version"]


def test_alerts_and_dashboards_are_those_of_deploy() -> None:
    assert (CHART / "files/rules.yaml").resolve() == ROOT / "deploy/prometheus/rules.yaml"
    boards = {file.resolve() for file in (CHART / "files/dashboards").iterdir()}
    assert boards == set((ROOT / "deploy/grafana").glob("*.json"))


@pytest.mark.parametrize("file", [CHART / "values.yaml", *EXAMPLES], ids=lambda file: file.stem)
def test_values_are_as_the_schema_says(file: Path) -> None:
    jsonschema.validate(parsed(file), json.loads((CHART / "values.schema.json").read_text("utf-8")))


def test_the_schema_has_the_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
    del schema["global"]  # Helm's own
    values = parsed(CHART / "values.yaml")
    assert schema.keys() == values.keys()
    for name, value in values.items():
        if schema[name].get("additionalProperties") is False:
            assert schema[name]["properties"].keys() == value.keys()


def test_templates_use_the_values_and_no_others() -> None:
    values = parsed(CHART / "values.yaml")
    text = "".join(file.read_text("utf-8") for file in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values((?:\.\w+)+)", text))
    assert used <= paths(values)
    assert {f".{name}" for name in values} == {re.match(r"\.\w+", path)[0] for path in used}


def test_an_example_gives_each_value() -> None:
    given = {name for file in EXAMPLES for name in parsed(file)}
    assert parsed(CHART / "values.yaml").keys() - given == {
        "log",
        "resources",
        "shm",
        "tmp",
        "terminationGracePeriodSeconds",
    }


@needs_helm
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_helm_finds_nothing_to_say(file: Path) -> None:
    done = helm("lint", "--strict", ".", "--values", str(file))
    assert (done.returncode, "[WARNING]" in done.stdout) == (0, False), done.stdout + done.stderr


@needs_helm
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "there is no map: helm install … --set-file map=map.yaml, or existingMap"),
        (("--set", "map=a", "--set", "existingMap=b"), "give map or existingMap, not both"),
        (
            ("--set", "existingMap=b", "--set", "standbys=1", "--set", "persistence.existingClaim=c"),
            "standbys want volumes of their own",
        ),
        (("--set", "existingMap=b", "--set", "persistance.size=1Gi"), "persistance"),
    ],
    ids=["no map", "two maps", "one volume", "misspelt"],
)
def test_a_release_that_would_not_start_is_refused(arguments: tuple[str, ...], fault: str) -> None:
    done = template(*arguments)
    assert (done.returncode, fault in done.stderr) == (1, True), done.stderr


@needs_helm
def test_the_pod_can_write_where_kuvasz_does_and_nowhere_else() -> None:
    pod = rendered("--values", str(CHART / "ci/least-values.yaml"))["StatefulSet shop-kuvasz"]["spec"]
    assert (pod["replicas"], pod["volumeClaimTemplates"][0]["metadata"]["name"]) == (1, "state")
    spec = pod["template"]["spec"]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 10001)
    assert "--uid 10001" in (ROOT / "Dockerfile").read_text("utf-8")
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    written = {path for path, mount in mounts.items() if not mount.get("readOnly")}
    assert written == {"/var/lib/kuvasz", "/home/kuvasz/.cache/numba", "/dev/shm", "/tmp"}  # noqa: S108
    volumes = {volume["name"] for volume in spec["volumes"]} | {"state"}
    assert {mount["name"] for mount in mounts.values()} == volumes


@needs_helm
def test_kuvasz_starts_with_the_map_and_the_variables_of_its_pod(tmp_path: Path) -> None:
    made = rendered("--values", str(CHART / "ci/all-values.yaml"))
    container = made["StatefulSet shop-kuvasz"]["spec"]["template"]["spec"]["containers"][0]
    text = made["ConfigMap shop-kuvasz-map"]["data"]["map.yaml"]
    assert text == parsed(CHART / "ci/all-values.yaml")["map"]
    (tmp_path / "eu").write_text("geheim")
    file = tmp_path / "map.yaml"
    file.write_text(text.replace("/run/secrets/rotating", str(tmp_path)))
    environ = {one["name"]: one["value"] for one in container["env"]} | {"CATALOG_PW": "geheim"}
    config = load.load(file, environ).config
    assert config.databases[0].tables.keys() == {"customers", "orders"}
    assert list(config.server.hosts) == [
        "shop-kuvasz", "shop-kuvasz.data", "shop-kuvasz.data.svc", "shop-kuvasz.data.svc.cluster.local",
        "kuvasz.example.org",
    ]  # fmt: skip
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(config.pipeline.state_folder.parent) in mounted
    assert str(Path(environ["KUVASZ_CONFIG"]).parent) in mounted
    assert container["ports"][0]["containerPort"] == config.server.port


@needs_helm
def test_what_watches_it_is_made_when_it_is_asked_for() -> None:
    made = rendered("--values", str(CHART / "ci/all-values.yaml"))
    assert made["PrometheusRule shop-kuvasz"]["spec"] == parsed(ROOT / "deploy/prometheus/rules.yaml")
    boards = made["ConfigMap shop-kuvasz-dashboards"]["data"]
    assert {name: json.loads(text) for name, text in boards.items()} == {
        f"kuvasz-{file.name}": json.loads(file.read_text("utf-8"))
        for file in (ROOT / "deploy/grafana").glob("*.json")
    }
    pod = made["StatefulSet shop-kuvasz"]["spec"]["template"]
    for watching in ("PodMonitor", "Service", "NetworkPolicy"):
        spec = made[f"{watching} shop-kuvasz"]["spec"]
        selected = spec.get("podSelector", spec.get("selector", {}))
        assert selected.get("matchLabels", selected).items() <= pod["metadata"]["labels"].items()
    (endpoint,) = made["PodMonitor shop-kuvasz"]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("http", "https")


@needs_helm
@pytest.mark.parametrize(("values", "scheme"), [("all", "HTTPS"), ("least", "HTTP")])
def test_probes_ask_as_the_server_answers(values: str, scheme: str) -> None:
    made = rendered("--values", str(CHART / f"ci/{values}-values.yaml"))
    container = made["StatefulSet shop-kuvasz"]["spec"]["template"]["spec"]["containers"][0]
    probes = [container[f"{which}Probe"]["httpGet"] for which in ("startup", "liveness", "readiness")]
    assert [one["scheme"] for one in probes] == [scheme] * 3


def test_every_probe_says_how_it_asks() -> None:
    text = (CHART / "templates" / "statefulset.yaml").read_text("utf-8")
    assert text.count("httpGet:") == text.count('scheme: {{ include "kuvasz.scheme" . }}') == 3


@needs_helm
def test_nothing_else_is_made() -> None:
    made = rendered("--values", str(CHART / "ci/least-values.yaml"))
    assert {name.split()[0] for name in made} == {"NetworkPolicy", "Service", "ServiceAccount", "StatefulSet"}
    assert made["NetworkPolicy shop-kuvasz"]["spec"]["ingress"] == []


@needs_helm
@deploy_tools.needs_schemas
@pytest.mark.process
@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("release", RELEASES)
def test_kubernetes_knows_every_field(release: str, version: str) -> None:
    made = rendered(*RELEASES[release]).values()
    own = [one for one in made if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    assert deploy_tools.kubernetes_faults(own, version) == []


@needs_helm
@deploy_tools.needs_schemas
@pytest.mark.process
@pytest.mark.parametrize(("field", "fault"), [("replica", "Additional properties"), ("replicas", "is not of type")])
def test_a_wrong_field_of_kubernetes_is_seen(field: str, fault: str) -> None:
    one = rendered("--values", str(CHART / "ci/least-values.yaml"))["StatefulSet shop-kuvasz"]
    one["spec"][field] = "1"
    (found,) = deploy_tools.kubernetes_faults([one], KUBERNETES[0])
    assert fault in found


@needs_helm
@deploy_tools.needs_monitors
@pytest.mark.process
def test_the_operator_of_prometheus_knows_every_field() -> None:
    made = rendered("--values", str(CHART / "ci/all-values.yaml"))
    for kind in ("PodMonitor", "PrometheusRule"):
        one = made[f"{kind} shop-kuvasz"]
        assert deploy_tools.monitor_faults(one) == ""
        one["spec"]["Selector"] = {}
        assert 'unknown field "spec.Selector"' in deploy_tools.monitor_faults(one)
