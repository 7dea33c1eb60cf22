"""Compare methods on your own data, as a script."""

import tempfile

import matplotlib.pyplot as plt
from digits_model import digits, trained_network

import fedade

images, labels = digits()
network = trained_network(images[:700], labels[:700])
deployment = fedade.deploy(network, (images[700:1000], labels[700:1000]))

# Clients that drift
def streams(seed):
    return fedade.drifting_streams(
        images[1000:],
        labels[1000:],
        kind="both",
        schedule="lin",
        num_clients=6,
        num_timesteps=24,
        samples=40,
        corruptions=["noise", "blur", "vignette"],
        seed=seed,
    )

# One call
methods = ["source", "prior-bbse", "tent", "fed-ade-plus", "oracle-prior"]
results = fedade.simulate(methods, deployment, streams, seeds=[0, 1], out=tempfile.mkdtemp())

for row in results.table:
    print(f"{row.method:14} {row.accuracy_post:6.1%} after adapting, {row.accuracy_pre:6.1%} before")

results.figures["accuracy"]

# Look closer
trace = results.trace.group_by(["method", "client"]).aggregate([("accuracy_post", "mean")]).to_pylist()
mean = {(row["method"], row["client"]): row["accuracy_post_mean"] for row in trace}
clients = range(6)

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for number, name in enumerate(methods):
    places = [client + number * 0.15 for client in clients]
    axes.bar(places, [mean[name, client] for client in clients], 0.14, label=name)
axes.set(xlabel="client", title="accuracy by client")
axes.legend(ncols=3, fontsize="small")
plt.show()
