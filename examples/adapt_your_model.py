"""Adapt your own model, and see how it is doing, as a script."""

import matplotlib.pyplot as plt
import torch
from digits_model import digits, trained_network

import fedade

images, labels = digits()
network = trained_network(images[:700], labels[:700])
held_out = images[700:1000], labels[700:1000]

# Five lines
deployment = fedade.deploy(network, held_out)  # copies the model, measures it on the held-out data
adapter = fedade.Adapter(deployment)  # the method is fed-ade-plus unless you say otherwise
probabilities = adapter(images[1000:1050])  # learns from a batch, and answers it
print(probabilities.shape)
print(adapter.status)

# A stream that drifts
draws = torch.Generator().manual_seed(1)
few = labels[1000:] <= 2
rows_usual, rows_few = torch.arange(1000, 1797), 1000 + torch.nonzero(few).squeeze(1)


def batch(number):
    pool = rows_usual if number <= 30 else torch.cat([rows_few.repeat(6), rows_usual])
    rows = pool[torch.randint(len(pool), (50,), generator=draws)]
    seen = images[rows] if number <= 15 else fedade.corrupt_images(images[rows], "low_contrast", severity=5)
    return seen, labels[rows]


monitor = fedade.AccuracyMonitor.rehearsed(deployment, held_out)  # judges accuracy without labels
adapter = fedade.Adapter(deployment, monitor=monitor)
record = []
for number in range(1, 51):
    inputs, truth = batch(number)
    answers = adapter(inputs).argmax(1)
    with torch.no_grad():
        plain = network(inputs).argmax(1)
    status = adapter.status
    record.append(
        {
            "adapted": (answers == truth).float().mean().item(),
            "not adapted": (plain == truth).float().mean().item(),
            "estimated": status.estimated_accuracy,
            "0, 1 or 2, estimated": status.prior[:3].sum().item(),
            "0, 1 or 2, true": (truth <= 2).float().mean().item(),
            "trust": status.trust,
        }
    )

# How it is doing
def smoothed(name, width=5):
    values = torch.tensor([entry[name] for entry in record])
    return [values[max(0, at - width + 1) : at + 1].mean() for at in range(len(values))]


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for name in ("adapted", "not adapted", "estimated"):
    left.plot(smoothed(name), label=name, linestyle="--" if name == "estimated" else "-")
left.set(title="accuracy, mean of five batches", xlabel="batch", ylim=(0, 1))
for name in ("0, 1 or 2, true", "0, 1 or 2, estimated", "trust"):
    right.plot(smoothed(name), label=name)
right.set(title="what the adapter believes", xlabel="batch", ylim=(0, 1))
for axes in (left, right):
    axes.axvline(15, color="grey", linewidth=0.5)
    axes.axvline(30, color="grey", linewidth=0.5)
    axes.legend()
plt.show()

print(adapter.status.alarm, adapter.status.alarm_reason)

# Keep it
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
deployment.save(folder / "deployment.safetensors")
adapter.save(folder / "adapter.safetensors")

again = fedade.load_deployment(folder / "deployment.safetensors", network)
adapter = fedade.Adapter.load(folder / "adapter.safetensors", again, monitor=monitor)
print(adapter.status.batches, "batches are remembered")
adapter.reset()  # as deployed
