"""The same as `fedade speed`, from a clone: python benchmarks/speed.py --device cpu --json"""

import typer

from fedade.cli.speed import speed_command

if __name__ == "__main__":
    typer.run(speed_command)
