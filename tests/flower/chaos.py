"""A bad network: a proxy on loopback that delays, cuts and repeats what passes through it."""

import asyncio
import random
import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType

from fedade.flower.federation import HOST

PIECE = 2**16
MOST_DELAY = 1.0
ANSWERED_SECONDS = 0.2
"""Silence of a server after which it has said all that it had to say."""

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BadNetwork:
    """Connections to a port of this machine, of whose requests a share meets with an accident.

    A request is what a client sends between two answers, encrypted or not. Some are held back, so that those of other
    connections overtake them. Some are lost with their connection. Of some the answer is lost, after the server has
    done what was asked: the client can only ask again, and the server hears it twice.
    """

    def __init__(self, to_port: int, share: float, seed: int) -> None:
        self.to_port, self.share, self._chance = to_port, share, random.Random(seed)
        self.happened: Counter[str] = Counter()
        """How many requests were `delayed`, `cut`, left without their `answer`, and passed."""
        self.port = 0
        self._open: set[_Way] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "BadNetwork":
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        async def listen() -> None:
            self._server = await asyncio.start_server(self._connection, HOST, 0)
            self.port = self._server.sockets[0].getsockname()[1]
            self._listening.set()

        self._loop.create_task(listen())
        self._loop.run_forever()
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        """End what is open; connections end by themselves then."""
        self._server.close()
        for way in list(self._open):
            way.close()
        while self._open:
            await asyncio.sleep(0.01)

    async def _connection(self, *client: *Ends) -> None:
        """Until one side closes, or an accident ends it."""
        try:
            server = await asyncio.open_connection(HOST, self.to_port)
        except OSError:
            client[1].close()
            return
        way = _Way(self, client, server)
        directions = {asyncio.create_task(way.requests()), asyncio.create_task(way.answers())}
        self._open.add(way)
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        way.close()
        self._open.discard(way)

    def accident(self) -> str:
        """What happens to the next request."""
        drawn = self._chance.choice(("delayed", "cut", "answer")) if self._chance.random() < self.share else "passed"
        self.happened[drawn] += 1
        return drawn

    def delay(self) -> float:
        """Seconds that a request is held back."""
        return self._chance.uniform(0.0, MOST_DELAY)


class _Way:
    """One connection, both ways."""

    def __init__(self, network: BadNetwork, client: Ends, server: Ends) -> None:
        self.network, self.client, self.server = network, client, server
        self._asking = False
        """Whether the server has not said anything since the last request."""
        self._losing = False

    def close(self) -> None:
        """As if a cable was pulled."""
        for _, writer in (self.client, self.server):
            writer.close()

    async def requests(self) -> None:
        """From the client, each with what happens to it."""
        while piece := await self.client[0].read(PIECE):
            if not self._asking:
                accident = self.network.accident()
                if accident == "cut":
                    return
                if accident == "delayed":
                    await asyncio.sleep(self.network.delay())
                self._losing = accident == "answer"
            self._asking = True
            self.server[1].write(piece)
            await self.server[1].drain()

    async def answers(self) -> None:
        """To the client, unless they get lost."""
        begun = False
        with suppress(TimeoutError):
            while piece := await asyncio.wait_for(self.server[0].read(PIECE), ANSWERED_SECONDS if begun else None):
                if self._losing:
                    begun = True
                    continue
                self._asking = False
                self.client[1].write(piece)
                await self.client[1].drain()
