"""`python -m gradproof` is the command line."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109  # pathlib may be shadowed
        del sys.path[0]  # or a file here, such as click.py, would take the place of a dependency
    from gradproof.cli import main

    main(prog_name="gradproof")
