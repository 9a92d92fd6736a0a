from __future__ import annotations

from pathlib import Path

from kuvasz.lake.executors.spool import Spool
from kuvasz.verbs.sources import erased_state
from tests.support.maps import loaded

MAP = """\
lake: {{warehouse: {folder}/wh}}
spark:
  master: "spark://m:7077"
  conf: {{spark.authenticate: "true", spark.authenticate.secret: "0123456789abcdef"}}
pipeline: {{state: {folder}/state}}
databases:
- {{database: shop, urls: [{{url: "postgresql:///a"}}], tables: {{items: }}}}
"""


def test_the_spool_of_a_cluster_is_emptied_however_new_its_files_are(tmp_path: Path) -> None:
    """Where Spark is a cluster it lies in the warehouse: what a kill left there is rows as the source sent them."""
    config = loaded(tmp_path, MAP.format(folder=tmp_path)).config
    path, _ = Spool(f"file://{tmp_path}/wh/_kuvasz_spool", {}).write([b"a row"])
    assert Path(path.removeprefix("file://")).is_file()
    assert erased_state.clear_spool(config) == 1
    assert not Path(path.removeprefix("file://")).exists()
