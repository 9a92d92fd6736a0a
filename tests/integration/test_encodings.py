"""Databases whose encoding, locale or way to print money is not that of most: their texts arrive as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

NOTES = "CREATE TABLE {} (id int PRIMARY KEY, body text, code varchar(4), list text[])"


@pytest.fixture
def made(postgres16: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of the encoding that the test asks for, on a server that knows it."""
    created = create_database(postgres16, options=f"TEMPLATE template0 LOCALE 'C' ENCODING '{request.param}'")
    yield created
    drop_database(created)


def in_utf8(database: Database) -> str:
    """The url of sessions that read what the database has as UTF-8, as kuvasz does."""
    return f"{database.url}?client_encoding=UTF8"


@pytest.mark.parametrize("made", ["EUC_JP"], indirect=True)
def test_a_database_of_another_encoding_arrives_in_utf8(made: Database, lake_folder: LakeFolder) -> None:
    """Names, too: the server makes UTF-8 of all it sends."""
    with made.connect(client_encoding="UTF8", autocommit=True) as session:
        session.execute(NOTES.format("注文"))
        session.execute('ALTER TABLE "注文" RENAME body TO "名前"')
        session.execute("INSERT INTO \"注文\" VALUES (1, '日本語ｶﾅ', '漢字', ARRAY['ぁ', NULL, 'ヶ'])")
        config = lake_folder.config(group({"jp": made}, {"注文": {"target": "orders"}}))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            session.execute("INSERT INTO \"注文\" VALUES (2, repeat('あ', 5000), '〇々', ARRAY['～'])")
            session.execute("UPDATE \"注文\" SET code = '東京都庁' WHERE id = 1")
            pipeline.wait_applied(made)
            pipeline.assert_equal("orders", source_rows(in_utf8(made), '"注文"', sid="jp"))


@pytest.mark.parametrize("made", ["LATIN1", "WIN1252"], indirect=True)
def test_a_database_of_one_byte_encoding_arrives_in_utf8(made: Database, lake_folder: LakeFolder) -> None:
    """With keys and names that take more bytes in the lake than in the source."""
    with made.connect(client_encoding="UTF8", autocommit=True) as session:
        session.execute('CREATE TABLE "Größen" ("Schlüssel" text PRIMARY KEY, "Länge" varchar(4), list text[])')
        session.execute("INSERT INTO \"Größen\" SELECT 'ÿ' || chr(192 + i % 60) || i, 'äöüß', ARRAY['§', NULL]"
                        " FROM generate_series(1, 300) i")  # fmt: skip
        config = lake_folder.config(group({"de": made}, {"Größen": {"target": "sizes"}}))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            session.execute('UPDATE "Größen" SET "Länge" = \'é\' WHERE "Schlüssel" LIKE \'ÿÀ%\'')
            session.execute('DELETE FROM "Größen" WHERE "Schlüssel" LIKE \'ÿÖ%\'')
            session.execute("INSERT INTO \"Größen\" VALUES ('þ', repeat('ø', 4), ARRAY[repeat('¥', 70000)])")
            pipeline.wait_applied(made)
            pipeline.assert_equal("sizes", source_rows(in_utf8(made), '"Größen"', sid="de"), key=("Schlüssel",))


@pytest.mark.parametrize("made", ["SQL_ASCII"], indirect=True)
def test_a_database_without_an_encoding_arrives_as_far_as_it_is_utf8(made: Database, lake_folder: LakeFolder) -> None:
    """What is not stops its table and says why: nobody knows what those bytes mean."""
    for table in ("good", "copied", "streamed"):
        made.execute(NOTES.format(table))
        made.execute(f"INSERT INTO {table} VALUES (1, E'\\xC3\\xA9t\\xC3\\xA9', 'ab', ARRAY[E'\\xC5\\xB1'])")
    made.execute("INSERT INTO copied VALUES (2, E'caf\\xE9')")
    config = lake_folder.config(group({"eu": made}, {"good": None, "copied": None, "streamed": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.good", State.STREAMING)
        pipeline.wait_state("shop_eu", "shop.streamed", State.STREAMING)
        made.execute("INSERT INTO streamed VALUES (2, E'na\\xEFve')")
        made.execute("INSERT INTO good VALUES (2, E'\\xE2\\x82\\xAC')")
        for table in ("copied", "streamed"):
            pipeline.wait_state("shop_eu", f"shop.{table}", State.ERROR)
        assert len(told := pipeline.errors()) == 2, told
        assert all("UTF-8" in error for error in told), told
        wait_until(lambda: len(pipeline.rows("good")) == 2, lambda: f"the good one goes on: {pipeline.errors()}")
        pipeline.assert_equal("good", source_rows(in_utf8(made), "good", sid="eu"))
        made.execute("UPDATE copied SET body = 'cafe'")
        made.execute("UPDATE streamed SET body = 'naive'")
        for table in ("copied", "streamed"):
            pipeline.tell("resync", f"shop.{table}", "shop_eu")
        pipeline.wait_streaming()
        for table in ("copied", "streamed"):
            pipeline.assert_equal(table, source_rows(in_utf8(made), table, sid="eu"))


def test_a_server_with_a_locale_sorts_and_prints_as_it_likes(
    german: EmbeddedPostgres, lake_folder: LakeFolder
) -> None:
    """Parts of a copy are cut by the server's order of keys; money is a text, printed as the database says."""
    database = create_database(german)
    with database.connect(autocommit=True) as session:
        assert session.execute("SELECT 'a' < 'B', 1234.5::numeric::money::text").fetchall() == [(True, "1.234,50 €")]
        session.execute("CREATE TABLE words (word text PRIMARY KEY, price money, prices money[])")
        session.execute(
            "INSERT INTO words SELECT chr(65 + i % 26) || (ARRAY['ä', 'Z', 'a'])[i % 3 + 1] || i,"
            " (i * 1000.01)::money, ARRAY[(-i)::money, NULL] FROM generate_series(1, 3000) i"
        )
        with Pipeline(lake_folder.config(group({"de": database}, {"words": None})), lake_folder) as pipeline:
            pipeline.wait_streaming()
            session.execute("UPDATE words SET price = price * 2 WHERE word LIKE 'A%'")
            session.execute("DELETE FROM words WHERE word LIKE 'b%' OR word LIKE 'Ca%'")
            session.execute("INSERT INTO words VALUES ('ßß', '-0,01', '{}')")
            pipeline.wait_applied(database)
            pipeline.assert_equal("words", source_rows(database.url, "words", sid="de"), key=("word",))
            assert ("ßß", "-0,01 €", ()) in [(word, price, prices) for word, price, prices in pipeline.rows("words")]


def test_money_is_printed_alike_in_copy_and_stream(german: EmbeddedPostgres, lake_folder: LakeFolder) -> None:
    """As the database has it, whatever the session that wrote it had."""
    database = create_database(german)
    database.execute(f"ALTER DATABASE {database.name} SET lc_monetary = 'en_GB.UTF-8'")
    database.execute("CREATE TABLE prices (id int PRIMARY KEY, price money)")
    database.execute("INSERT INTO prices VALUES (1, '£1,234.50'), (2, NULL)")
    with Pipeline(lake_folder.config(group({"gb": database}, {"prices": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect(options="-c lc_monetary=de_DE.UTF-8") as session:
            session.execute("INSERT INTO prices VALUES (3, '1.234,50 €')")
        pipeline.wait_applied(database)
        pipeline.assert_equal("prices", source_rows(database.url, "prices", sid="gb"))
        assert sorted(pipeline.rows("prices")) == [(1, "£1,234.50"), (2, None), (3, "£1,234.50")]
