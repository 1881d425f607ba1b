"""`python -m gradproof` is the command line."""

from gradproof.cli import main

if __name__ == "__main__":
    main(prog_name="gradproof")
