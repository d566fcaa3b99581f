"""Start of a rank's interpreter: has torch watched, then runs the site's own sitecustomize.

Whatever Python the rank's command names runs this, so it is written for all of them, from 2.7 on.
It leaves ``sys.path`` as it would be without it.
"""

import os
import sys

_HERE = os.path.dirname(__file__)

try:
    if "EVERSTEP_RANK_FILES" in os.environ:
        from everstep_torch_finder import TorchFinder  # type: ignore[import-not-found]

        sys.meta_path.insert(0, TorchFinder(_HERE))
except Exception:  # noqa: BLE001 - an older Python, or a rank that cannot be read, starts
    pass

while _HERE in sys.path:
    sys.path.remove(_HERE)
_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # type: ignore[import-not-found] # noqa: F401 - the next one on the path
except ImportError as _error:
    if getattr(_error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", _own)
