"""Who is awake."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.seeds import Seeds
from fedade.engine.attendance import awake, scored_panel


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(1, 30), st.integers(0, 5), st.data())
def test_those_who_are_scored_and_present_and_those_who_take_part(
    joined: set[int], scored: int, seed: int, data: st.DataObject
) -> None:
    present = np.array(sorted(joined))
    panel = scored_panel(Seeds(seed), 31, scored)
    if not {*panel.tolist()} & joined:
        return
    places = data.draw(st.sets(st.integers(0, len(present) - 1), min_size=1, max_size=4))
    found = awake(present[None], np.array(sorted(places))[None, None], 31, scored, [Seeds(seed)])
    taking_part = present[sorted(places)]
    assert found.scored_clients.tolist() == [sorted({*panel.tolist()} & joined)]
    assert found.clients[0][found.participants[0, 0]].tolist() == taking_part.tolist()
    assert found.clients[0].tolist() == sorted({*panel.tolist()} & joined | {*taking_part.tolist()})
