"""`import gradproof` beside a bare interpreter: it imports no framework and takes less than a tenth of a second."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def main() -> int:
    pairs = [(seconds("import gradproof"), seconds("pass")) for _ in range(11)]
    extra = statistics.median(with_it - bare for with_it, bare in pairs)
    heavy = "import sys, gradproof; print(sorted({'torch', 'numpy', 'rich', 'jax'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", heavy], check=True, capture_output=True, text=True).stdout.strip()
    print(f"import gradproof: {extra * 1e3:.0f} ms beyond a bare interpreter; heavy modules imported: {found}")
    return int(extra >= 0.1 or found != "[]")


if __name__ == "__main__":
    sys.exit(main())
