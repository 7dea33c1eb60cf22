"""A fleet on loopback, then on real hosts, as a script."""

# One file says what the fleet does
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
from digits_model import digits

place = Path(tempfile.mkdtemp(prefix="fleet"))
clients = ["ada", "bea", "cho"]
(place / "fleet.yaml").write_text("""
preset: digits-label
methods: [fed-ade-plus]
scenario: {num_clients: 3, num_timesteps: 5}
flower:
  clients: [ada, bea, cho]
  stream: {kind: folder, path: batches}
  share: [prior]
""")


def fedade(*words, **options):
    """What `fedade WORDS` prints in a terminal."""
    command = [sys.executable, "-m", "fedade", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


print(fedade("flower", "init", "app", "fleet.yaml"))

# Keys for everybody
nodes = [word for name in clients for word in ("--node", name)]
print(fedade("flower", "certs", "certs", "--host", "127.0.0.1", *nodes))
print(fedade("flower", "sign", "app", "certs"))

# Data arrive
images, labels = (values.numpy() for values in digits(noise=0.35))
often = {"ada": [0, 1, 2], "bea": [7], "cho": [3, 8, 9]}
draws = np.random.default_rng(1)
truth = {}
for name in clients:
    (place / f"batches-{name}").mkdir()
    for number in range(5):
        weights = np.where(np.isin(labels, often[name]), 1 + 5 * number, 1)
        rows = draws.choice(len(labels), 50, p=weights / weights.sum())
        np.save(place / f"batches-{name}" / f"{number:03}.npy", images[rows])
        truth[name, number] = labels[rows]

# Start them
def free_port():
    with socket.socket() as any_free:
        any_free.bind(("127.0.0.1", 0))
        return str(any_free.getsockname()[1])


def start(*words):
    command = [sys.executable, "-m", "fedade", "flower", *words]
    return subprocess.Popen(command, cwd=place, stderr=subprocess.DEVNULL)  # where they log


port, local_port = free_port(), free_port()
address = f"127.0.0.1:{port}"
superlink = ("superlink", "certs", "--home", "home", "--host", "127.0.0.1", "--port", port, "--local-port", local_port)
programs = [start(*superlink)]
for name in clients:
    own = ("--state-dir", "state", "--deployment", "app/deployment.safetensors", "--stream", f"batches-{name}")
    programs.append(start("node", "certs", name, "--superlink", address, *own))


def is_open(number):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", int(number))) == 0


while not is_open(local_port) and programs[0].poll() is None:  # the SuperLink takes a few seconds
    time.sleep(0.2)

# Run
here = os.environ | {"FLWR_HOME": str(place / "home" / "homes" / "superlink")}  # who may submit: this host alone
fedade("flower", "run", "app", "--out", "run", "--deployment", "app/deployment.safetensors", env=here)
print(fedade("flower", "status", "run"))

# Ask a node
np.save(place / "new.npy", images[:8])
print(fedade("flower", "predict", "state/ada", "new.npy").split(), "answered")
print([str(label) for label in labels[:8]], "true")

rows = pq.read_table(place / "run" / "trace.parquet").to_pylist()
figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for number, (name, panel) in enumerate(zip(clients, panels)):
    answers = [np.load(place / f"batches-{name}" / "predictions" / f"{batch:03}.npy").argmax(1) for batch in range(5)]
    right = [(answers[batch] == truth[name, batch]).mean() for batch in range(5)]
    print(name, "right in each batch:", " ".join(f"{share:.0%}" for share in right))
    believed = next(row["prior"] for row in rows if row["client"] == number and row["timestep"] == 5)
    panel.bar(range(10), np.bincount(truth[name, 4], minlength=10) / 50, color="lightgrey", label="true")
    panel.plot(range(10), believed, "o", label="believed")
    panel.set(title=f"{name}, last batch", xlabel="class", xticks=range(10))
panels[0].set_ylabel("frequency")
panels[0].legend()
plt.show()

for program in programs:
    program.terminate()
for program in programs:
    program.wait(timeout=60)
