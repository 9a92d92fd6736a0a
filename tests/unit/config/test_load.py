from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import effective, load, sources
from kuvasz.config.model import Config, DatabaseConfig, PipelineConfig, TableConfig, TlsConfig, UrlConfig
from kuvasz.errors import ConfigError
from tests.support.examples import examples
from tests.support.maps import SHOP, faults, loaded, refusal


def test_default_file_environment_and_flag_in_this_order(tmp_path: Path) -> None:
    text = "pipeline: {workers: 3, commit_interval: 2s, memory: 2GB}\n" + SHOP
    result = loaded(
        tmp_path, text, {"KUVASZ_PIPELINE__WORKERS": "4", "KUVASZ_PIPELINE__COMMIT_INTERVAL": "500ms"},
        {"pipeline.workers": "5"},
    )  # fmt: skip
    pipeline = result.config.pipeline
    assert (pipeline.workers, pipeline.commit_interval, pipeline.memory, pipeline.chunk_bytes) == (
        5,
        0.5,
        2**31,
        2**23,
    )
    origins = [result.origin_of(("pipeline", o)) for o in ("workers", "commit_interval", "memory", "chunk_bytes")]
    assert origins == ["flag", "environment KUVASZ_PIPELINE__COMMIT_INTERVAL", "map.yaml:1:53", "default"]
    assert result.origin["databases[0].urls[0].sid"] == "map.yaml:5:53"


def test_paths_begin_at_the_maps_folder_wherever_kuvasz_is_started(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\n")
    text = "lake: {warehouse: data/wh}\nserver: {tls: {certificate: a.crt, key: /b.key}}\n" + SHOP.replace(
        "geheim", "${file:password}"
    )
    (tmp_path / "map.yaml").write_text(text)
    config = load.load(tmp_path / "map.yaml", {"KUVASZ_LAKE__URI": "jdbc:sqlite:../c.db?mode=rw"}).config
    assert config.lake.warehouse == f"{tmp_path}/data/wh"
    assert config.lake.uri == f"jdbc:sqlite:{tmp_path.parent}/c.db"
    assert config.pipeline.state == f"{tmp_path}/.kuvasz"
    assert config.server.tls == TlsConfig(certificate=f"{tmp_path}/a.crt", key="/b.key")
    assert config.databases[0].urls[0].url.get() == "postgresql://repl:geheim@eu1/shop"


@pytest.mark.parametrize(
    ("uri", "warehouse"), [("jdbc:sqlite:/c.db", "/wh"), ("jdbc:postgresql://c/iceberg", "s3://lake/wh")]
)
def test_places_that_are_no_relative_paths_stay_as_they_are(tmp_path: Path, uri: str, warehouse: str) -> None:
    text = f"lake: {{uri: '{uri}', warehouse: '{warehouse}'}}\n" + SHOP
    (tmp_path / "map.yaml").write_text(text)
    lake = load.load(tmp_path / "map.yaml", {}).config.lake
    assert (lake.uri, lake.warehouse) == (uri, warehouse)


def test_a_password_that_is_a_name_too_hides_no_name(tmp_path: Path) -> None:
    text = SHOP.replace("repl:geheim", "streamer:streamer").replace("eu1/shop", "eu1/d?password=geheim2")
    result = loaded(tmp_path, text)
    assert result.secrets == {"geheim2"}
    assert "postgresql://streamer:***@eu1/d?password=***" in effective.yaml(result)
    for name in ("shop", "eu", "eu1", "orders", "public", "shop_eu", "kuvasz_shop_eu"):
        assert loaded(tmp_path, SHOP.replace("geheim", name)).secrets == frozenset()


def test_all_kinds_of_faults_are_told_in_one_round(tmp_path: Path) -> None:
    text = """
        lake: {uri: mysql://c}
        pipeline: {comit_interval: 1s}
        databases:
        - database: shop
          urls:
          - {url: "postgresql://${NOBODY}@eu1/shop", sid: eu}
          - {url: "postgresql://us1/shop", sid: us}
          tables:
            orders: {type: clonee}
            items: {columns: [a], exclude: [b]}
    """
    assert faults(tmp_path, text) == [
        "map.yaml:2:13: lake.uri: a jdbc catalog needs a uri that begins with jdbc:sqlite: or jdbc:postgresql:",
        "map.yaml:3:12: pipeline.comit_interval: unknown key 'comit_interval': did you mean 'commit_interval'?",
        "map.yaml:7:11: databases[0].urls[0].url: the environment variable NOBODY is not set"
        " (a default is written ${NOBODY:-…})",
        "map.yaml:10:20: databases[0].tables.orders.type: must be clone, append, history or changelog,"
        " not 'clonee': did you mean 'clone'?",
        "map.yaml:11:27: databases[0].tables.items.exclude: cannot be given together with columns",
    ]


def test_a_bare_list_is_a_map(tmp_path: Path) -> None:
    text = SHOP.removeprefix("databases:\n")
    result = loaded(tmp_path, text)
    assert result.config == loaded(tmp_path, SHOP).config
    assert result.origin["databases[0].database"] == "map.yaml:1:13"
    assert refusal(tmp_path, text.replace("sid: eu", "sdi: eu")) == (
        "map.yaml:3:48: databases[0].urls[0].sdi: unknown key 'sdi': did you mean 'sid'?"
    )


def test_the_environment_alone_is_enough() -> None:
    databases = "[{database: shop, urls: [{url: 'postgresql://u@h/d'}], tables: {a: }}]"
    result = load.load(None, {"KUVASZ_DATABASES": databases})
    assert result.config.databases[0].urls[0].url.get() == "postgresql://u@h/d"
    with pytest.raises(ConfigError, match=r"^the key 'databases' is missing\nhint: "):
        load.load(None, {})


def test_the_processes_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUVASZ_PIPELINE__WORKERS", "7")
    monkeypatch.setenv("KUVASZ_DATABASES", "[{database: d, urls: [{url: 'postgresql://u@h/d'}], tables: {a: }}]")
    assert load.load(None).config.pipeline.workers == 7


def test_only_values_that_are_used_are_filled(tmp_path: Path) -> None:
    text = "lake: {namespace: '${NAMESPACE}'}\n" + SHOP
    assert loaded(tmp_path, text, {"KUVASZ_LAKE__NAMESPACE": "mine"}).config.lake.namespace == "mine"
    assert loaded(tmp_path, text, {"NAMESPACE": "theirs"}).config.lake.namespace == "theirs"
    assert refusal(tmp_path, text) == (
        "map.yaml:1:19: lake.namespace: the environment variable NAMESPACE is not set"
        " (a default is written ${NAMESPACE:-…})"
    )


def test_filled_values_are_checked_as_if_they_stood_there(tmp_path: Path) -> None:
    text = "pipeline: {workers: '${WORKERS:-2}', commit_interval: '${INTERVAL:-1s}'}\n" + SHOP
    assert loaded(tmp_path, text, {"WORKERS": "3"}).config.pipeline.workers == 3
    assert faults(tmp_path, text, {"WORKERS": "x", "INTERVAL": "5"}) == [
        "map.yaml:1:21: pipeline.workers: must be a whole number, not 'x'",
        "map.yaml:1:55: pipeline.commit_interval: must be a duration such as 500ms, 1s, 5m, 1h or 1d, not '5':"
        " did you mean 5s?",
    ]


def test_all_unset_variables_are_told(tmp_path: Path) -> None:
    text = SHOP.replace("geheim", "${EU_PW}").replace("sid: eu", "sid: '${SID}'")
    assert faults(tmp_path, text, {"EU_PWD": "x"}) == [
        "map.yaml:4:11: databases[0].urls[0].url: the environment variable EU_PW is not set: did you mean ${EU_PWD}?",
        "map.yaml:4:55: databases[0].urls[0].sid: the environment variable SID is not set"
        " (a default is written ${SID:-…})",
    ]


def test_a_password_comes_from_a_file_and_may_change(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("first/1\n")
    result = loaded(tmp_path, SHOP.replace("geheim", f"${{file:{tmp_path}/pw}}"))
    url = result.config.databases[0].urls[0].url
    assert url.get() == "postgresql://repl:first%2F1@eu1/shop"
    assert {"first/1", "first%2F1"} <= result.secrets
    (tmp_path / "pw").write_text("second")
    assert url.get() == "postgresql://repl:second@eu1/shop"


@pytest.mark.parametrize("place", ["from: ", "servers: {'eu1:5432': {from: "])
def test_the_url_of_a_standby_is_secret_and_read_anew_as_any_other(tmp_path: Path, place: str) -> None:
    (tmp_path / "pw").write_text("first/1")
    said = f"{place}'postgresql://repl:${{file:{tmp_path}/pw}}@standby'{'}}' if 'servers' in place else ''}"
    result = loaded(tmp_path, f"copy: {{{said}}}\n{SHOP}")
    url = result.config.copy.of("eu1:5432").copied_from
    assert url is not None
    assert url.get() == "postgresql://repl:first%2F1@standby"
    assert "first/1" in result.secrets
    assert "first" not in f"{result.config!r} {result.config.model_dump_json()}"
    (tmp_path / "pw").write_text("second/2")
    assert url.get() == "postgresql://repl:second%2F2@standby"
    by_name = loaded(tmp_path, SHOP, {"KUVASZ_COPY__FROM": "postgresql://standby"})
    assert by_name.config.copy.of("eu1:5432").copied_from is not None


def test_the_url_of_who_replicates_is_secret_and_read_anew_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("first/1")
    role = f"replication_url: 'postgresql://slots:${{file:{tmp_path}/pw}}@'"
    result = loaded(tmp_path, SHOP.replace("sid: eu", f"sid: eu, {role}"))
    (source, *_) = sources.resolve(result.config)
    assert source.replication_url is not None
    assert source.replication_url.get() == "postgresql://slots:first%2F1@"
    assert "first/1" in result.secrets
    assert "first" not in f"{result.config!r} {result.config.model_dump_json()} {source!r}"
    assert "slots" in sources.identifiers(result.config), "a role's name is none of what is hidden"
    (tmp_path / "pw").write_text("second/2")
    assert source.replication_url.get() == "postgresql://slots:second%2F2@"


def test_a_file_that_is_missing_is_told_with_its_place(tmp_path: Path) -> None:
    text = SHOP.replace("geheim", "${file:/run/secrets/none}")
    assert refusal(tmp_path, text) == (
        "map.yaml:4:11: databases[0].urls[0].url: cannot read the file '/run/secrets/none': no such file or directory"
    )


def test_what_a_property_has_from_outside_is_a_secret_unless_its_name_says_what_it_is(tmp_path: Path) -> None:
    text = (
        "lake: {properties: {x.odd: '${ODD}', y.odd: '${NONE:-Written1}', z.odd: Written2,"
        " client.region: '${REGION}'}}\n"
        "spark: {conf: {spark.odd: '${MORE}', spark.executor.memory: '${SIZE}'}}\n" + SHOP
    )
    environ = {"ODD": "Hidden1", "MORE": "Hidden2", "REGION": "eu-west-1", "SIZE": "4g"}
    result = loaded(tmp_path, text, environ)
    assert result.secrets == {"geheim", "Hidden1", "Hidden2", "Written1"}
    shown = effective.yaml(result)
    assert not [secret for secret in result.secrets if secret in shown]
    assert [text for text in ("Written2", "eu-west-1", "4g") if text not in shown] == []


def test_secrets_are_known_and_nothing_shows_them(tmp_path: Path) -> None:
    text = (
        "lake: {properties: {jdbc.password: catalog-pw, s3.secret-access-key: '${KEY}'}, uri: 'jdbc:postgresql://c/x'}\n"
        + SHOP
    )
    result = loaded(tmp_path, text, {"KEY": "store-key"})
    assert result.secrets == {"geheim", "catalog-pw", "store-key"}
    for secret in result.secrets:
        assert secret not in repr(result)
        assert secret not in str(result.config)


def test_what_java_is_given_under_a_secrets_name_is_one(tmp_path: Path) -> None:
    options = "-Xss4m -Daws.secretKey=Hidden1 -Dmy.token='Hidden 2' -Daws.region=eu-west-1 -Dmy.password="
    text = f'spark: {{conf: {{spark.driver.extraJavaOptions: "{options}"}}}}\n' + SHOP
    result = loaded(tmp_path, text)
    assert result.secrets == {"geheim", "Hidden1", "Hidden 2"}
    shown = effective.yaml(result)
    assert "Hidden" not in shown
    assert "-Daws.region=eu-west-1" in shown


TOKENS = """\
server:
  tokens:
  - {name: ann, role: admin, token: "${file:ann}"}
  - {name: bob, role: viewer, token: "bob-${BOB}"}
"""


def test_tokens_come_from_files_and_variables_and_nothing_shows_them(tmp_path: Path) -> None:
    file, values = tmp_path / "ann", ("ann-0123456789-ann", "bob-0123456789-bob")
    file.write_text(f"{values[0]}\n")
    (tmp_path / "map.yaml").write_text(TOKENS + SHOP)
    result = load.load(tmp_path / "map.yaml", {"BOB": values[1][4:]})
    tokens = result.config.server.tokens
    assert [(one.name, one.role.value, one.token.get()) for one in tokens] == [
        ("ann", "admin", values[0]),
        ("bob", "viewer", values[1]),
    ]
    assert set(values) <= result.secrets
    shown = [repr(result), str(result.config), effective.yaml(result), str(effective.options(result))]
    assert not any(value in text for value in values for text in shown)
    file.write_text("another-0123456789")
    assert tokens[0].token.get() == "another-0123456789"


@pytest.mark.parametrize("content", ["", "short", "with blanks in it", "töken-0123456789"])
def test_a_token_that_might_be_guessed_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    (tmp_path / "ann").write_text(content)
    assert refusal(tmp_path, TOKENS + SHOP, {"BOB": "0123456789-bob"}) == (
        "map.yaml:3:37: server.tokens[0].token: must be at least 16 letters, digits or signs without blanks, such as"
        " `openssl rand -hex 32` prints"
    )


def test_a_token_without_its_file_or_with_another_role_is_told(tmp_path: Path) -> None:
    text = TOKENS.replace("viewer", "owner") + SHOP
    assert faults(tmp_path, text, {"BOB": "0123456789-bob"}) == [
        "map.yaml:3:37: server.tokens[0].token: cannot read the file 'ann': no such file or directory",
        "map.yaml:4:23: server.tokens[1].role: must be viewer, operator or admin, not 'owner'",
    ]


def test_a_secret_that_turns_up_elsewhere_is_hidden_in_refusals(tmp_path: Path) -> None:
    text = SHOP.replace("database: shop", "database: shop\n  on_slot_lost: geheim")
    assert refusal(tmp_path, text) == (
        "map.yaml:3:17: databases[0].on_slot_lost: must be stop, repair or resync, not '***'"
    )


def test_the_cause_of_a_refusal_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, SHOP.replace("postgresql:", "mysql:"))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_map_that_comes_with_kuvasz_is_right() -> None:
    path = Path(__file__).parents[3] / "config" / "map.yaml"
    config = load.load(path, {}).config
    (group,) = config.databases
    assert [(url.sid, url.url.get()) for url in group.urls] == [
        ("eu", "postgresql://postgres@127.0.0.1:54321/shop"),
        ("us", "postgresql://postgres@127.0.0.1:54322/shop"),
        ("ap", "postgresql://postgres@127.0.0.1:54323/shop"),
    ]
    assert (group.database, list(group.tables), config.lake.namespace) == (
        "shop", ["customers", "orders", "products"], "shop",
    )  # fmt: skip
    urls = {"EU_URL": "postgresql://a@h/x", "US_URL": "postgresql://b@h/x", "AP_URL": "postgresql://c@h/x"}
    assert [url.url.get() for url in load.load(path, urls).config.databases[0].urls] == list(urls.values())


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
sections = [Config, PipelineConfig, DatabaseConfig, UrlConfig, TableConfig]
words = st.sampled_from(["a.b", '"', "x", *(option for section in sections for option in section.model_fields)])
values = st.recursive(
    scalars | words | st.just("postgresql://u:p@h/d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(100), deadline=None)
@given(values)
def test_any_map_is_loaded_or_refused(value: object) -> None:
    try:
        load.load(None, {"KUVASZ_DATABASES": json.dumps(value), "KUVASZ_LAKE__PROPERTIES": json.dumps(value)})
    except ConfigError as error:
        assert error.message  # noqa: PT017


def test_the_text_of_a_map_is_a_configuration_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUVASZ_PIPELINE__WORKERS", "7")
    (tmp_path / "pw").write_text("geheim")
    text = SHOP.replace("geheim", "${file:pw}").replace("@eu1", "@${HOST}")
    config = load.of_text(text, {"HOST": "eu2"}, tmp_path)
    assert (config.pipeline.workers, config.lake.warehouse) == (2, "lake/warehouse")
    assert config.databases[0].urls[0].url.get() == "postgresql://repl:geheim@eu2/shop"
    with pytest.raises(
        ConfigError, match=r"^map:4:11: databases\[0\]\.urls\[0\]\.url: the environment variable HOST is"
    ):
        load.of_text(text, {}, tmp_path)


@pytest.mark.parametrize(
    ("lake", "live"),
    [
        ("uri: 'jdbc:postgresql://c/x'", {"jdbc.password", "s3.access-key-id"}),
        ("uri: 'jdbc:sqlite:c.db'", {"s3.access-key-id"}),
        ("type: rest, uri: 'https://c'", {"token"}),
        ("type: glue", set()),
    ],
)
def test_credentials_of_the_lake_that_are_in_files_are_asked_for_again(
    tmp_path: Path, lake: str, live: set[str]
) -> None:
    for name in ("password", "key", "token"):
        (tmp_path / name).write_text("old")
    properties = {
        "jdbc.password": "${file:password}", "s3.access-key-id": "${file:key}", "token": "${file:token}",
        "s3.endpoint": "http://s",
    }  # fmt: skip
    text = f"lake: {{{lake}, warehouse: 's3://lake/wh', properties: {json.dumps(properties)}}}\n{SHOP}"
    (tmp_path / "map.yaml").write_text(text)
    config = load.load(tmp_path / "map.yaml", {}).config
    for name in ("password", "key", "token"):
        (tmp_path / name).write_text("new")
    found = config.lake.live_properties
    assert {name for name in found if found[name] == "new"} == live
    secrets = {"jdbc.password", "s3.access-key-id", "token"}
    assert set(config.lake.asked_at_start) == secrets - live
    assert set(config.lake.properties.values()) == {"old", "http://s"}
    assert load.load(tmp_path / "map.yaml", {}).config.lake.properties["token"] == "new"
