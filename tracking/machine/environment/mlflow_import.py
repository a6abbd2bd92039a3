"""One thread at a time imports MLflow, whose packages import each other in a circle.

Of two that wait for each other there, Python lets one go on with half a module, which fails.
"""

from __future__ import annotations

import threading

importing_mlflow = threading.Lock()
