"""Import this before Great Expectations, which looks for more than we use of it.

It asks whether Spark's remote client is there, and pyspark 4 then ends the whole process, with exit code 0,
unless what that client needs is installed too. Said to be absent, it is passed over.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
if find_spec("pyspark") is not None and find_spec("grpc") is None:
    sys.modules.setdefault("pyspark.sql.connect", None)  # type: ignore[arg-type] # how Python says "absent"
