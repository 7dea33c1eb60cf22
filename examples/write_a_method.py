"""Write a method in your own package, as a script."""

# Does it keep the contract?
import subprocess
import sys

checked = subprocess.run(
    [sys.executable, "-m", "fedade", "check-method", "my_methods:Smoothed"], capture_output=True, text=True, check=True
)
print(checked.stdout)

# Put it into a table
import tempfile

from digits_model import digits, trained_network

import fedade

images, labels = digits()
network = trained_network(images[:700], labels[:700])
deployment = fedade.deploy(network, (images[700:1000], labels[700:1000]))
streams = fedade.drifting_streams(images[1000:], labels[1000:], num_clients=6, num_timesteps=20, schedule="squ")

slower = {"name": "slower", "my_methods:Smoothed": {"momentum": 0.9}}  # a row with a name and settings of its own
methods = ["source", "my_methods:Smoothed", slower, "oracle-prior"]
results = fedade.simulate(methods, deployment, streams, out=tempfile.mkdtemp())
for row in results.table:
    print(f"{row.method:22} {row.accuracy_post:6.1%}")

results.figures["accuracy"]
