"""What kuvasz is delivered with: its Python packages and jars, what is known against them, the bill of materials.

`python -m supply.audit` (`make audit`), `python -m supply.sbom` (`make sbom`) and `python -m supply.jar_files`
(`make jar-lock`). Nothing of this is in the wheel or the image.
"""

from __future__ import annotations
