"""The rules for all tests of this room; the planted bugs of the benchmarks are planted in tests too."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[2]):
    sys.path.insert(0, str(folder))  # importlib mode puts no folder on the path by itself
