"""`python -m fedade`."""

from fedade.cli.main import main

if __name__ == "__main__":
    main()
