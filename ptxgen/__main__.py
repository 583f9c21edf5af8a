"""`python -m ptxgen` is the command line."""

from ptxgen.cli import main

if __name__ == "__main__":
    main()
