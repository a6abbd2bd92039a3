"""A lock for imports of MLflow, whose packages import each other in a circle.

If two threads deadlock in such imports, Python lets one continue with a half-initialised module, which fails.
"""

import threading

importing_mlflow = threading.Lock()
