"""Redo a table of the paper, as a script."""

# Run a part
import subprocess
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp()) / "table"


def bench(*words):
    command = [sys.executable, "-m", "fedade", "bench", "smoke", "--out", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


only = ["--only", "kind=label", "--only", "method=source,fth,fix-lr-mid,fed-ade,oracle-prior"]
print(bench(*only, "--seed", "0"))

# Read it
import csv

import matplotlib.pyplot as plt

with open(folder / "results.csv") as file:
    cells = list(csv.DictReader(file))
rows = list(dict.fromkeys(cell["row"] for cell in cells))

figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
for offset, schedule in enumerate(("lin", "squ")):
    score = {cell["row"]: 100 * float(cell["accuracy_post"]) for cell in cells if cell["schedule"] == schedule}
    axes.bar([number + 0.4 * offset for number in range(len(rows))], [score[row] for row in rows], 0.38, label=schedule)
axes.set(title="accuracy in percent", ylim=(60, 90))
axes.set_xticks([number + 0.2 for number in range(len(rows))], rows)
axes.legend(title="schedule")
plt.show()
