"""The sparse tensors for all tests of this room."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no folder of tests on the path by itself
