"""The planted bugs of the benchmarks are planted in tests too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # importlib mode puts no folder on the path by itself
