"""`fedade`, as nodes run it that waste the server's time or memory: `python -m tests.flower.withholding_node ...`.

The client `announces` says that it has an answer and does not send it; `floods` sends hundreds of megabytes.
"""

import os
import sys

from flwr.app import ArrayRecord

from fedade.cli.main import main
from fedade.flower import client_app, fleet_link
from fedade.flower.client_app import Identity
from fedade.flower.fleet_link import FleetLink
from fedade.flower.wire import Answer

from .hostile import array

FLOOD_BYTES = 400_000_000
honest_record, honest_send, honest_identity = client_app.answer_record, FleetLink.send, Identity.of
name = [""]


def noted(*configs):
    identity = honest_identity(*configs)
    name[0] = identity.name
    return identity


def flooding(answer: Answer):
    content = honest_record(answer)
    if name[0] == "floods":
        content["arrays"] = ArrayRecord({"uplink": array(os.urandom(FLOOD_BYTES))})
    return content


def withholding(link, answer, seconds):
    if name[0] == "announces" and answer.metadata.message_type == "train.turn":
        push, fleet_link.push_objects = fleet_link.push_objects, lambda *_, **__: None
        try:
            honest_send(link, answer, seconds)
        finally:
            fleet_link.push_objects = push
    else:
        honest_send(link, answer, seconds)


if __name__ == "__main__":
    client_app.answer_record = flooding
    Identity.of = noted
    FleetLink.send = withholding
    sys.exit(main())
