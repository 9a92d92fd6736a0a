"""The compose file: what it mounts is there, its map loads, and who asks whom is told the right name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kuvasz.config import environment, load, sources
from kuvasz.lake.java import jars

FOLDER = Path(__file__).parents[3] / "deploy"


def parsed(file: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load((FOLDER / file).read_text("utf-8"))
    return found


COMPOSE = parsed("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
KUVASZ = SERVICES["kuvasz"]


def mounts() -> Iterator[tuple[str, str, str]]:
    """Yield service, what is mounted, and where."""
    for name, service in SERVICES.items():
        for mount in service.get("volumes", ()):
            what, where, *_ = mount.split(":")
            yield name, what, where


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> load.Config:
    """The map, loaded with the variables that kuvasz has there."""
    (file,) = (what for _, what, where in mounts() if where == KUVASZ["environment"]["KUVASZ_CONFIG"])
    dockerfile = (FOLDER.parent / "Dockerfile").read_text("utf-8")
    of_the_image = dict(re.findall(r"^ENV (KUVASZ_\w+)=(\S+)", dockerfile, re.MULTILINE))
    return load.load(FOLDER / file, of_the_image | KUVASZ["environment"]).config


def test_whatever_is_mounted_is_there() -> None:
    found = list(mounts())
    assert len(found) > 10
    files = [what for _, what, _ in found if what.startswith(".")]
    assert [what for what in files if not (FOLDER / what).exists()] == []
    assert {what for _, what, _ in found if not what.startswith(".")} == COMPOSE["volumes"].keys()


def test_ports_are_of_this_machine_alone_and_each_is_taken_once() -> None:
    ports = [port.split(":") for service in SERVICES.values() for port in service.get("ports", ())]
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    outside = [port for _, port, _ in ports]
    assert len(outside) == len(set(outside))


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "kuvasz"])
def test_an_image_of_others_is_named_by_tag_and_digest(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_whoever_is_waited_for_is_there_and_says_when_it_is_ready(name: str) -> None:
    waits = SERVICES[name].get("depends_on", {})
    assert waits if name == "kuvasz" else True
    for other in waits:
        is_told = isinstance(waits, dict) and waits[other]["condition"] == "service_healthy"
        assert "healthcheck" in SERVICES[other] or not is_told, other


def test_the_map_names_who_is_there(config: load.Config) -> None:
    hosts = {host for source in sources.resolve(config) for host in re.findall(r"@(\w+)/", str(source.url))}
    assert hosts == {"eu", "us"}
    assert re.search(r"//(\w+)/", config.lake.uri)[1] in SERVICES
    assert re.search(r"//(\w+):9000", config.lake.properties["s3.endpoint"])[1] in SERVICES
    assert jars.is_on_s3(config)
    bucket = SERVICES["bucket"]["command"][-1]
    assert config.lake.warehouse.startswith(f"s3://{bucket.removeprefix('minio/')}/")


def test_passwords_are_those_of_whoever_asks_for_them(config: load.Config) -> None:
    catalog, minio = SERVICES["catalog"]["environment"], SERVICES["minio"]["environment"]
    properties = config.lake.properties
    assert (properties["jdbc.user"], properties["jdbc.password"]) == (
        catalog["POSTGRES_USER"], catalog["POSTGRES_PASSWORD"],
    )  # fmt: skip
    assert (properties["s3.access-key-id"], properties["s3.secret-access-key"]) == (
        minio["MINIO_ROOT_USER"], minio["MINIO_ROOT_PASSWORD"],
    )  # fmt: skip
    made = re.search(r"ROLE kuvasz LOGIN REPLICATION PASSWORD '([^']+)'", (FOLDER / "compose/source.sql").read_text())
    assert made is not None
    assert made[1] == KUVASZ["environment"]["SOURCE_PW"]


def test_the_state_lies_in_a_volume(config: load.Config) -> None:
    volumes = [Path(where) for name, what, where in mounts() if name == "kuvasz" and not what.startswith(".")]
    assert any(volume in config.pipeline.state_folder.parents for volume in volumes)


def test_prometheus_asks_kuvasz_by_a_name_that_it_answers_to(config: load.Config) -> None:
    asked = parsed("compose/prometheus.yaml")
    (job,) = asked["scrape_configs"]
    ((host, port),) = (target.split(":") for target in job["static_configs"][0]["targets"])
    assert host in SERVICES
    assert host in config.server.hosts, "it would answer 421"
    assert (config.server.host, str(config.server.port)) == ("0.0.0.0", port)  # noqa: S104
    assert (
        re.search(r'job=~"([^"]+)"', (FOLDER / "prometheus/rules.yaml").read_text())[1].strip(".*") in job["job_name"]
    )


def test_prometheus_and_grafana_find_what_is_mounted() -> None:
    places = {where for _, _, where in mounts()}
    assert set(parsed("compose/prometheus.yaml")["rule_files"]) <= places
    (provider,) = parsed("compose/grafana/dashboards.yaml")["providers"]
    assert provider["options"]["path"] in places
    (datasource,) = parsed("compose/grafana/datasources.yaml")["datasources"]
    assert re.fullmatch(r"http://(\w+):9090", datasource["url"])[1] in SERVICES


@pytest.mark.parametrize("file", sorted(file.name for file in FOLDER.glob("compose.*.yaml")))
def test_more_processes_are_the_same_with_folders_of_their_own(file: str) -> None:
    found = beside(file)
    places = {mount.split(":")[1]: mount.split(":")[0] for mount in KUVASZ["volumes"]}
    lasting = {place: what for place, what in places.items() if not what.startswith(".")}
    known, volumes = environment.options(), []
    for name, service in found["services"].items():
        assert all(option in known for option in service["environment"])
        host = re.search(r"@(\w+)/", service["environment"]["KUVASZ_CLUSTER__COORDINATOR"])
        assert host is not None
        assert host[1] in SERVICES
        if name == "kuvasz":
            continue
        assert service["extends"] == {"file": "compose.yaml", "service": "kuvasz"}
        own = {mount.split(":")[1]: mount.split(":")[0] for mount in service["volumes"]}
        assert own.keys() == lasting.keys()
        volumes += own.values()
    assert sorted(volumes) == sorted(found["volumes"])
    assert not set(volumes) & set(lasting.values())


def test_a_standby_has_what_the_first_one_has() -> None:
    services = beside("compose.standby.yaml")["services"]
    assert services["standby"]["environment"] == services["kuvasz"]["environment"]


def test_processes_with_roles_of_their_own_start() -> None:
    """With the map of the one, and what compose says besides."""
    clusters = {}
    for name, service in beside("compose.cluster.yaml")["services"].items():
        config = load.load(FOLDER / "compose/map.yaml", {**KUVASZ["environment"], **service["environment"]}).config
        clusters[name] = config.cluster.role, config.cluster.group, config.lake.namespace, config.lake.warehouse
        assert config.cluster.log_location == "s3://lake/_kuvasz/log"
    first = "shop", "s3://lake/warehouse"
    assert clusters == {
        "kuvasz": ("apply", None, *first), "read-a": ("read", None, *first), "read-b": ("read", None, *first),
        "blue": ("apply", "blue", "blue", "s3://lake/blue"),
    }  # fmt: skip


def beside(file: str) -> dict[str, Any]:
    """Return a file that stands beside `compose.yaml`."""
    text = (FOLDER / file).read_text("utf-8").replace("!override ", "").replace("!reset ", "")
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return found
