"""What each error's hint asks for is there to be done: its commands are taken, its options are of the map.

And it is done by a test, or it says here why no test can do it.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.model import Config
from tests.support import command_list, error_list
from tests.support.commands import is_taken

pytestmark = pytest.mark.text

ROOT = Path(__file__).parents[1]


@functools.cache  # not when tests are collected, which each process does: all of the program is parsed for it
def hints() -> list[str]:
    """Return the hints of all errors."""
    return sorted({hint for found in error_list.messages().values() for _, hint in found if hint.strip("… .;,")})


VERBS = command_list.verbs().keys()

_COMMAND = re.compile(r"kuvasz((?: --?[a-z][a-z-]*(?: [^\s,;:.()`]+)?| [a-z]+)+)")

#: What hints ask for -> the test that does it after such an error, and what it does it by.
FOLLOWED = {
    r"kuvasz (resync|retry) --table": (
        "acceptance/test_accounted_for.py", '"resync" if "kuvasz resync" in told.hint',
    ),
    r"^copy\.from has to lead to a standby": ("integration/test_copy_from_standby.py", "# as the hint says"),
    r"copy the table again$|copy the table again: its key": ("integration/test_rules.py", 'tell("resync"'),
    r"kuvasz resync --sid": ("acceptance/test_another_past.py", 'run("resync", "--sid"'),
    r"if pg_upgrade has made it": ("acceptance/test_major_upgrade.py", "# as the hint says"),
    r"on_slot_lost": ("integration/test_slot_lost.py", "on_slot_lost"),
    r"on_lake_rewound: repair": ("integration/test_lake_rewound.py", "repair"),
    r"on_bad_value: stop": ("integration/test_rejects.py", "on_bad_value"),
    r"kuvasz retry`|[,;] (then|or) retry|kuvasz resume, or retry": ("integration/test_admin.py", 'kuvasz("retry"'),
    r"kuvasz resume": ("acceptance/test_control.py", '"resume", "--table"'),
    r"kuvasz reload|have it read again$": ("acceptance/test_live_map.py", 'run("reload")'),
    r"kuvasz discover": ("integration/test_discover.py", "discover.of_url("),
    r"kuvasz init": ("acceptance/test_init.py", '"init"'),
    r"kuvasz (plan|status)`": ("integration/test_admin.py", 'kuvasz("plan")'),
    r"be writable by the user of kuvasz$": ("unit/log/test_log_file.py", "blocked.unlink()  # as the hint says"),
    r"see that the user who runs kuvasz may read it$": (
        "unit/state/notices/test_notice_file.py", "# as the hint says",
    ),
    r"`initial: skip` follows the table": ("integration/test_initial.py", "# As the hints say."),
    r"kuvasz source list": ("integration/test_sources.py", '"list"'),
    r"kuvasz cluster nodes": ("acceptance/test_kept_indexes.py", '"cluster", "nodes"'),
    r"kuvasz map versions|map import|--config sqlite": ("unit/verbs/maps/test_stored.py", '"map", "versions"'),
    r"with --config(, and start again)?$|kuvasz --config map\.yaml": (
        "acceptance/test_first_hour.py", "KUVASZ_CONFIG",
    ),
    r"needs a lake of its own": ("unit/verbs/cluster/test_own_tables.py", "# As the hint says"),
    r"kuvasz cluster groups": ("acceptance/test_log_groups.py", '"cluster", "groups"'),
    r"such as --former green": ("unit/verbs/cluster/test_groups.py", "a/b"),
    r"^have them in the map of .*, and let it run": ("contract/test_log_groups.py", "# As the hint says"),
    r"kuvasz cluster retire": ("acceptance/test_log_groups.py", '"cluster", "retire"'),
    r"add --yes": ("integration/test_admin.py", '"--yes"'),
    r"ALTER PUBLICATION|kuvasz alters it|drop the publication: kuvasz makes": (
        "integration/test_publication.py", "execute(caught.value.hint)",
    ),
    r"FULL makes updates carry it; for those that came": ("integration/test_rules.py", "items REPLICA IDENTITY FULL"),
    r"give the table REPLICA IDENTITY FULL": ("integration/test_publication.py", "execute(caught.value.hint)"),
    r"REPLICA IDENTITY FULL makes it carry all|pg_drop_replication_slot|^ALTER SYSTEM": (
        "integration/test_hints_of_sql.py", "# as the hint says",
    ),
    r"GRANT CREATE ON SCHEMA": ("integration/test_lakeview.py", "execute(told.value.hint"),
    r"exclude: ": ("integration/test_least_data.py", "exclude"),
    r"^(verify again|run it again|compare again)": (
        "integration/test_verify_races.py", '"verify again", "run it again"',
    ),
    r"openssl genpkey": ("unit/lake/java/test_signing_key.py", "shlex.split(command)"),
    r"--with-tags removes": ("integration/test_erase.py", "with_tags=True"),
    r"kuvasz publish --table …|start kuvasz (once )?with (it|that)|system\.set_current_snapshot|DROP BRANCH": (
        "contract/test_branches.py", "# as the hint says",
    ),
    r"make a cut: `kuvasz cut --name": ("integration/test_branches.py", "remote.cut("),
    r"with --fix it mends what it can": ("integration/test_branches.py", 'table="clone", is_fixing=True'),
    r"kuvasz publish --verify": ("integration/test_branches.py", "comparing="),
    r"kuvasz publish --force": ("unit/admin/branches/test_publish_request.py", "# as the hint says"),
    r"`pipeline\.earlier_seal_secret` to the": ("unit/parking/test_log.py", "# as the hint says"),
    r"begin again: it goes on where it was": ("integration/test_erase.py", "world.command("),
    r"whole paths|the whole path": ("unit/verbs/maps/test_stored.py", "taken_in(store, file, {}).is_new"),
}  # fmt: skip

_BY_ITSELF = "kuvasz does it: nobody has anything to do"
_CHOICE = (
    "a person chooses what the map, or the command, is to say; that a mended map counts: acceptance/test_live_map.py"
)
_MACHINE = "it is about a machine, a disk, a network or a permission that its owner mends"
_OTHERS = "another program, or a person at a server or at the lake, does it"
_FACT = "it says what is so, or may be written"
_VERSION = "it takes another version of kuvasz or of the server"
_REPORT = "it cannot happen, as far as we know: who meets it is to tell us"

#: What other hints say -> why no test does it.
NOT_FOLLOWED = {
    r"^it (is|may be) (tried|compared|copied|looked at|begun)\b|^it begins again|^its table is copied"
    r"|^it is tried again|^the process that applies goes on"
    r"|kuvasz (reconnects|begins|copies|goes on|looks at|tries)|^kuvasz alters"
    r"|^nothing (is|that was) (lost|confirmed)"
    r"|^so does kuvasz|kept until all have|it is (tried|copied) again(; see|,|$| by itself)": _BY_ITSELF,
    r"[Cc]hoose another|take (it|one|the entry|the whole|it out)|out of the map|name (one|it|another|its|the|a|…)"
    r"|change (the|`mask`)|give (all|it|this|a|one)|rename (it|one|the)|keep the|write|mend |another `?target"
    r"|columns of"
    r"|`schemas`|partitions_regex|`set`|a sid of|leave `consistency|add (it|them)|make it give|set `type|set it"
    r"|restart kuvasz|remove|used in an expression|try_divide|hmac|decimal is|--no-check|without a default"
    r"|which is the"
    r"|the first: |expressions are to mean|snapshots longer|--sid|own columns|or name columns|as they were"
    r"|`lake: |read it again|see the manual|needs quotes|check quotes|begin with|see its spelling|UTF-8"
    r"|own folder|switch the option|says where it is written|as the source or the lake calls it": _CHOICE,
    r"^check |^make room|^free space|^see (that|the cluster|whether|Spark|the log|`jcmd|its log)|^install"
    r"|^set AWS_REGION"
    r"|^they come from Maven|more memory|memory of ten|give `spark|may (write|list)|has to be allowed|PEM"
    r"|let this user"
    r"|let kuvasz|the store returned|as its user|folder on a local disk|raise|-Xrs|Spark may not"
    r"|messages above": _MACHINE,
    r"another engine|pg_locks|^see (who|what they)|synchronous standby|rewrite_data_files|leave compacting|^stop "
    r"|one kuvasz|in the lake|name back|^make (it|the)|^restore|metadata file|in a moment$|^move|from the lake|detach"
    r"|have (it|kuvasz) (follow|apply)|^run (it|this|one|the|`kuvasz)|let kuvasz run|start(\(\))? |start again"
    r"|another process|the server's log": _OTHERS,
    r"^it (has|wins|was|means|is a file|takes)|ends their|of all sources|^the (one|column|verbs|missed)|^docs/"
    r"|^a (column|table|time)"
    r"|use jdbc|no kuvasz has|^use |staged|the gap|a row that says|^…|names are|^it …|none|^a lake in memory": _FACT,
    r"version of kuvasz|PostgreSQL 17|upgrade the server": _VERSION,
    r"report it|breaks the replication protocol": _REPORT,
}  # fmt: skip


def commands(hint: str) -> list[list[str]]:
    """Return the arguments of the commands that a hint names, in backticks or not."""
    verbs = {verb.split()[0] for verb in VERBS}
    found = []
    for given in _COMMAND.findall(hint):
        words = given.split()
        if words[0] in verbs or words[0].startswith("-"):
            end = next((n for n, word in enumerate(words) if n and not _is_of_command(words, n)), len(words))
            found.append(words[:end])
    return found


def _is_of_command(words: list[str], n: int) -> bool:
    """Whether a word is an option, an option's value, or the second word of a verb."""
    return words[n].startswith("-") or words[n - 1].startswith("-") or " ".join(words[: n + 1]) in VERBS


def options() -> set[str]:
    """Return the names of all options of a map, also without their sections."""
    found: set[str] = set()
    schema = Config.model_json_schema()

    def walk(properties: dict[str, Any], path: str) -> None:
        for name, one in properties.items():
            found.update({name, f"{path}{name}"})
            for reference in re.findall(r"#/\$defs/(\w+)", str(one)):
                walk(schema["$defs"][reference].get("properties", {}), f"{path}{name}.")

    walk(schema["properties"], "")
    return found


#: In backticks, and no option of ours: those of Spark and of the catalog, programs, patterns, and values.
_NO_OPTION = {
    "client.region", "spark.cores.max", "spark.driver.memory", "spark.executor.cores", "spark.executor.memory",
    "jcmd", "openssl genpkey -algorithm ed25519 -out erasures.pem",
    "kuvasz", "*", "null", "resync", "sqlite:map.db", "postgresql://user@host/database",
}  # fmt: skip


def test_hints_are_found() -> None:
    assert len(hints()) > 200
    assert commands("copy it: kuvasz resync --table …; or `kuvasz source list` lists them") == [
        ["resync", "--table", "…"], ["source", "list"],
    ]  # fmt: skip
    assert commands("kuvasz reconnects by itself; let kuvasz write there") == []
    assert {"lake.uri", "on_slot_lost", "databases.tables.type"} <= options()


def test_a_command_of_a_hint_is_one() -> None:
    assert [(hint, given) for hint in hints() for given in commands(hint) if not is_taken(given)] == []


def test_an_option_of_a_hint_is_one_of_the_map() -> None:
    named = {text for hint in hints() for text in re.findall(r"`([^`]+)`", hint) if not text.startswith("kuvasz ")}
    names = {name for text in named - _NO_OPTION for name in re.findall(r"^([\w.]+)|\{(\w+):", text)[0] if name}
    assert names - options() == set()


def test_a_hint_is_followed_by_a_test_or_says_why_not() -> None:
    known = (*FOLLOWED, *NOT_FOLLOWED)
    open_ = [hint for hint in hints() if not any(re.search(pattern, hint) for pattern in known)]
    assert open_ == [], "which test does what they say?"


def test_nothing_is_said_of_hints_that_are_gone() -> None:
    unused = [one for one in (*FOLLOWED, *NOT_FOLLOWED) if not any(re.search(one, hint) for hint in hints())]
    assert unused == []


@pytest.mark.parametrize(("file", "done"), sorted(set(FOLLOWED.values())))
def test_a_test_does_what_it_is_said_to(file: str, done: str) -> None:
    assert done in (ROOT / file).read_text("utf-8")
