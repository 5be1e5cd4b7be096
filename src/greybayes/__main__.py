"""`python -m greybayes` is the command line."""

from greybayes.cli import main

if __name__ == "__main__":
    main()
