"""The clock over a Flower grid: the simulator's protocol, one message a client and turn.

A turn is one exchange. Timestep t has as many turns as rounds; its first goes to every client, which finishes its
last personal step, closes t − 1 (and tells its row of the trace), opens t and observes, and, if it was drawn, trains.
Later turns go to the round's participants, and to those of the round before, which take their personal step. After the
last timestep one more turn closes it.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from flwr.app import RecordDict
from torch import Tensor

from fedade.core import tree
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.method import FederatedMethod
from fedade.core.seeds import Seeds
from fedade.engine.attendance import Rounds
from fedade.flower import bounds, checkpoint, wire
from fedade.flower.checkpoint import Progress, count
from fedade.flower.exchange import Exchange
from fedade.flower.members import Member, Roster
from fedade.flower.privacy import PrivacyAccount
from fedade.flower.rows import PlainRow, check_row, plain_row, widths_of
from fedade.flower.settings import FlowerTask
from fedade.flower.wire import Answer, Instruction, Named, TurnOutcome, digest, named_leaves, one_line, tree_like

log = logging.getLogger("flwr.fedade")
REMEMBERED = 32
"""Updates of a client that are known again when it sends them a second time."""


@dataclass
class Server:
    """Runs one method through its timesteps, from wherever its progress stands."""

    task: FlowerTask
    method: FederatedMethod | None
    """None for a method without rounds."""
    deployment: Deployment
    forms: wire.Forms
    exchange: Exchange
    roster: Roster
    progress: Progress
    folder: Path
    account: PrivacyAccount | None
    on_timestep: Callable[[list[PlainRow]], None]
    """Called after each timestep with the rows that clients have reported since."""

    def run(self) -> list[PlainRow]:
        """All rows of the trace, once every timestep is closed; of a run without end, never."""
        last = math.inf if self.task.timesteps is None else self.task.timesteps * self.task.rounds
        opened = time.monotonic()
        while self.progress.turn <= last:
            begun = time.monotonic()
            timestep, number = divmod(self.progress.turn, self.task.rounds)
            ends = self.progress.turn == last
            self._turn(0 if ends else timestep + 1, number)
            self.progress.turn += 1
            self.progress.seconds += time.monotonic() - begun
            if ends or number == self.task.rounds - 1:
                reported = self.progress.rows
                checkpoint.save(self.folder, self.progress, list(self.roster))
                self.on_timestep(reported)
                if not ends:
                    time.sleep(max(0.0, opened + self.task.flower.timestep_seconds - time.monotonic()))
                opened = time.monotonic()
        return checkpoint.rows(self.folder, self.progress.turn)

    def _turn(self, timestep: int, number: int) -> None:
        """One exchange, and what the server makes of it. Timestep 0 closes the last one."""
        participants = self._participants(timestep, number)
        asked = [
            member
            for member in self._present(timestep)
            if number == 0 or member.number in participants or member.personal_step_due
        ]
        answers = self._answers(asked, participants, timestep, number)
        for member in asked:
            if member.name in answers:
                self._settle(member, answers[member.name], timestep)
        updates = {
            member: answers[member.name]
            for member in asked
            if member.number in participants and member.name in answers and answers[member.name].uplink
        }
        if updates and self.method is not None:
            self._aggregate(self.method, updates)

    def _participants(self, timestep: int, number: int) -> frozenset[int]:
        """Drawn over the clients' numbers, at the address that the simulator draws them from."""
        if self.method is None or timestep == 0:
            return frozenset()
        rounds = Rounds(self.task.rounds, self.task.experiment.protocol.participation)
        when = None if self.method.keeps_participants else timestep
        present = self._present(timestep)
        drawn = rounds.participants(Seeds(self.task.seed), len(present), when)
        return frozenset(present[place].number for place in drawn[number].tolist())

    def _present(self, timestep: int) -> list[Member]:
        """Who has joined; timestep 0 closes the last one, when all have."""
        return [member for member in self.roster if not timestep or self.task.first_timestep(member.number) <= timestep]

    def _answers(
        self, asked: list[Member], participants: frozenset[int], timestep: int, number: int
    ) -> Mapping[str, Answer]:
        """The answers that count; a turn without a quorum is tried again, and then ends the run."""
        answers: dict[str, Answer] = {}
        needed = [member for member in asked if member.number in participants] or asked
        quorum = self.task.flower.quorum * len(needed)
        shared, told = named_leaves(self.progress.shared), dict[str, Instruction]()

        def write(member: Member) -> RecordDict:
            told[member.name] = self._instruction(member, shared, member.number in participants, timestep, number)
            return wire.instruction_record(told[member.name])

        def judge(member: Member, content: RecordDict) -> bool:
            answer = self._judged(member, content, shared, told.pop(member.name))
            if answer is not None:
                answers[member.name] = answer
            return answer is not None

        def enough() -> bool:
            return sum(member.name in answers for member in needed) >= quorum

        for attempt in range(1 + self.task.flower.retries):
            missing = {member.name: member for member in asked if member.name not in answers}
            self.exchange.attempt(missing, write, judge, enough)
            if enough():
                break
            log.warning("turn %d: no quorum in attempt %d", self.progress.turn, attempt + 1)
        silent = [member.name for member in asked if member.name not in answers]
        self.progress.unanswered += len(silent)
        if not enough():
            raise FedadeError(
                f"timestep {timestep}, round {number}: {len(answers)} of {len(asked)} clients answered, no quorum of "
                f"{self.task.flower.quorum:g} after {1 + self.task.flower.retries} attempts; without answer: "
                f"{', '.join(silent)}; see their logs, then start the run again to continue"
            )
        if silent:
            log.warning("turn %d goes on without %s", self.progress.turn, ", ".join(silent))
        return answers

    def _instruction(self, member: Member, shared: Named, trains: bool, timestep: int, number: int) -> Instruction:
        seeds = Seeds(self.task.seed)
        return Instruction(
            run=self.progress.run,
            turn=self.progress.turn,
            base=member.base,
            keep=member.kept,
            timestep=timestep,
            trains=trains,
            observe_key=seeds.number("observe", client=member.number, timestep=timestep),
            round_key=seeds.number("local", client=member.number, timestep=timestep, round=number),
            version=self.progress.version,
            shared=shared if self.progress.version else {},
            downlink=member.downlink,
            nonce=secrets.token_hex(8),
        )

    def _judged(self, member: Member, content: RecordDict, shared: Named, told: Instruction) -> Answer | None:
        """An answer that counts, or None; a refused one is named and counted, and is as if it had never come. A row
        that is refused leaves the rest of the answer: the client could not close its timestep otherwise."""
        try:
            answer = self._read(content, told)
            asked = named_leaves(self.forms.uplink) if told.trains else None
            bounds.check_update(answer, asked, shared, self.task.flower)
            if digest(answer.uplink) in member.counted and bounds.distance(answer.uplink, shared):
                raise FedadeError("it repeats an update that counted already")
        except FedadeError as error:
            count(self.progress.refused, member.name)
            member.trouble = f"answer refused: {one_line(error)}"
            log.warning("answer of %s refused: %s", member.name, one_line(error))
            return None
        if answer.outcome is TurnOutcome.failed:
            count(self.progress.failed, member.name)
            member.trouble = "its turn failed; its own log says why"
            log.warning("%s failed in turn %d; its own log says why", member.name, self.progress.turn)
            return None
        if answer.restarted:
            log.warning("%s lost its state, and began afresh", member.name)
        closed = member.timestep if member.timestep != told.timestep else 0
        try:
            if answer.row is not None:
                widths = widths_of(self.forms.plan, self.deployment.num_classes)
                check_row(answer.row, closed, widths, self.task.flower)
        except FedadeError as error:
            count(self.progress.refused, member.name)
            log.warning("row of %s refused: %s", member.name, one_line(error))
            return replace(answer, row=None)
        return answer

    def _read(self, content: RecordDict, told: Instruction) -> Answer:
        """The answer in a message, if it is one to what this client was told, and of a size that it may have."""
        if (held := wire.content_bytes(content)) > self.exchange.most_bytes:
            raise FedadeError(f"it has {held} bytes, more than {self.exchange.most_bytes}")
        answer = wire.read_answer(content)
        if answer.nonce != told.nonce:
            raise FedadeError("it answers another message")
        return answer

    def _settle(self, member: Member, answer: Answer, timestep: int) -> None:
        """An answer that counts: the client has finished its last round, and is where the turn put it."""
        member.last_seen, member.trouble = time.time(), ""
        if answer.outcome is TurnOutcome.bad_batch:
            member.trouble = "it set a bad batch aside; its own log says why"
            count(self.progress.quarantined, member.name)
            log.warning("%s set a bad batch aside in turn %d; its own log says why", member.name, self.progress.turn)
        if answer.row is not None:
            self.progress.rows.append(plain_row(member, answer.row))
            told = answer.row.measures.items()
            member.measures = {name: value for name, value in told if not isinstance(value, list)}
        if member.timestep != timestep:
            member.participated = member.bytes_sent = member.bytes_received = 0
        member.base, member.timestep = self.progress.turn, timestep or member.timestep
        member.personal_step_due, member.downlink = False, {}

    def _aggregate(self, method: FederatedMethod, updates: Mapping[Member, Answer]) -> None:
        """The server's part of a round, over updates in the order of the clients' numbers."""
        ordered = sorted(updates, key=lambda member: member.number)
        sent = self._within_bounds({member: updates[member].uplink for member in ordered})
        uplinks = tree.stack([tree_like(self.forms.uplink, uplink) for uplink in sent])
        with torch.no_grad():
            broadcast, downlinks = method.aggregate(
                self.deployment,
                self.progress.shared,
                bounds.centred(uplinks, self.task.flower),
                self._weights([updates[member].samples for member in ordered]),
            )
        if not all(leaf.isfinite().all() for leaf in tree.leaves(broadcast)):
            log.warning("turn %d: the average holds NaN or infinite values; not used", self.progress.turn)
            return
        if self.account is not None:
            broadcast = self.account.release(broadcast, len(ordered))
        self.progress.shared, self.progress.version = broadcast, self.progress.version + 1
        for place, member in enumerate(ordered):
            downlink = tree.take(downlinks, place)
            member.personal_step_due, member.downlink = True, named_leaves(downlink)
            member.counted = [*member.counted, digest(updates[member].uplink)][-REMEMBERED:]
            member.participated += 1
            member.bytes_sent += tree.num_bytes(uplinks) // len(ordered)
            member.bytes_received += tree.num_bytes(broadcast) + tree.num_bytes(downlink)

    def _within_bounds(self, uplinks: Mapping[Member, Named]) -> list[Named]:
        """Updates of which none moves farther than privacy allows or, without it, than a multiple of what others do."""
        shared, before, settings = named_leaves(self.progress.shared), self.progress.distances, self.task.flower
        distances = {member: bounds.distance(uplink, shared) for member, uplink in uplinks.items()}
        bound = math.inf
        if self.account is not None:
            # One that depends on the data would let a client be seen in how the others were scaled.
            bound = self.account.settings.clipping_norm
        elif settings.outlier_factor is not None:
            bound = bounds.learnt_bound(list(distances.values()), before, settings.outlier_factor, len(self.roster))
        self.progress.distances = bounds.remembered(before, list(distances.values()), len(self.roster))
        for member, moved in distances.items():
            if moved > bound * bounds.ROUNDING:
                count(self.progress.scaled_back, member.name)
                log.warning("update of %s moves by %.3g; scaled back to %.3g", member.name, moved, bound)
        return [bounds.scaled_back(uplink, shared, bound) for uplink in uplinks.values()]

    def _weights(self, samples: list[int]) -> Tensor:
        counts, factor = torch.tensor(samples, dtype=torch.float32), self.task.flower.outlier_factor
        if self.account is not None:  # one client's influence is bounded only where all count alike
            return torch.ones_like(counts)
        return counts if factor is None else bounds.bounded_weights(counts, factor)
