"""`fedade`, as liars run it: `python -m tests.flower.hostile_node flower nodes ...`."""

import sys

from fedade.cli.main import main
from fedade.flower import client_app
from fedade.flower.client_app import Identity

from .hostile_answers import HONEST, lie

honest_answer, honest_reading = client_app.answer_record, client_app.read_instruction
turn, names = [0], [""]


def noting_reading(content):
    instruction = honest_reading(content)
    turn[0] = instruction.turn
    return instruction


def noting_identity(*configs):
    identity = Identity.of(*configs)
    names[0] = identity.name
    return identity


def lying_answer(answer):
    content = honest_answer(answer)
    lie(content, int(names[0][-1]) - HONEST, turn[0])
    return content


if __name__ == "__main__":
    client_app.read_instruction = noting_reading
    client_app.answer_record = lying_answer
    client_app.Identity = type("Identity", (), {"of": staticmethod(noting_identity)})
    sys.exit(main())
