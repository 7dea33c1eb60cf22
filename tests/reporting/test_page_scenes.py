"""What a page keeps of traces, and what it leaves out when they are many."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from fedade.core.errors import FedadeError
from fedade.core.trace import column
from fedade.reporting.page.grids import Blobs
from fedade.reporting.page.scenes import TIERS, Scene, complete, pack

from .made_up import PAPER, made_up_page, made_up_scenes, made_up_trace
from .test_page_numbers import unpacked

SMALL = {"clients": 12, "steps": 9}


def counted(numbering):
    if isinstance(numbering, list):
        return numbering
    return [numbering["first"] + place * numbering["step"] for place in range(numbering["count"])]


def test_curves_are_mean_and_quartiles_of_the_trace():
    packed = pack(made_up_scenes(("lin",), ("fed-ade",), (0,), **SMALL))
    (track,) = packed.index["scenes"][0]["tracks"]
    table = made_up_trace("fed-ade", 0, "lin", **SMALL)
    values = column(table, "accuracy_post").reshape(9, 12)
    wanted = np.stack([values.mean(1), *np.percentile(values, [25, 75], axis=1)])
    found = unpacked(Blobs(list(packed.blobs)), track["curves"]["accuracy_post"])
    np.testing.assert_allclose(found, wanted, atol=1 / 65534)
    assert counted(track["timesteps"]) == list(range(1, 10))


def test_single_clients_are_kept_as_they_were():
    packed = pack(made_up_scenes(("squ",), ("fed-ade",), (0,), **SMALL))
    (track,) = packed.index["scenes"][0]["tracks"]
    table, blobs = made_up_trace("fed-ade", 0, "squ", **SMALL), Blobs(list(packed.blobs))
    client, time = 5, 3
    row = time * 12 + client
    columns = track["detail"]["columns"]
    assert "severity" not in columns, "zero everywhere says nothing"
    assert unpacked(blobs, columns["accuracy_pre"])[client, time] == pytest.approx(column(table, "accuracy_pre")[row])
    rate = unpacked(blobs, columns["learning_rate"])[client, time]
    assert rate == pytest.approx(column(table, "learning_rate")[row], abs=columns["learning_rate"]["step"])
    prior = unpacked(blobs, track["priors"]["columns"]["prior"])[client, :, time]
    np.testing.assert_allclose(prior, column(table, "prior")[row], atol=0.5 / 254 + 1e-9)


def test_a_client_that_was_away_leaves_a_gap():
    def read():
        table = made_up_trace("fed-ade", 0, "lin", **SMALL)
        return table.filter(~((pc.field("client") == 3) & (pc.field("timestep") < 5)))

    scene = made_up_scenes(("lin",), ("fed-ade",), (0,), **SMALL)[0]
    packed = pack([replace(scene, recordings=[replace(scene.recordings[0], read=read)])])
    (track,) = packed.index["scenes"][0]["tracks"]
    found = unpacked(Blobs(list(packed.blobs)), track["detail"]["columns"]["accuracy_post"])
    assert np.isnan(found[3, :4]).all()
    assert np.isfinite(found).sum() == 12 * 9 - 4


def test_clients_that_are_not_evenly_numbered_keep_their_numbers():
    def read():
        table = made_up_trace("fed-ade", 0, "lin", **SMALL)
        return table.filter(pc.field("client").isin([1, 2, 7]))

    scene = made_up_scenes(("lin",), ("fed-ade",), (0,), **SMALL)[0]
    packed = pack([replace(scene, recordings=[replace(scene.recordings[0], read=read)])])
    assert counted(packed.index["scenes"][0]["tracks"][0]["detail"]["clients"]) == [1, 2, 7]


def sizes_of(characters: int, scenes: list[Scene]):
    tiers = [replace(tier, characters=characters) for tier in TIERS]
    packed = pack(scenes, tiers)
    curves = pack(scenes, [])
    assert sum(map(len, packed.blobs)) - sum(map(len, curves.blobs)) <= len(tiers) * characters * 1.3
    return packed.index["scenes"][0]["tracks"]


def test_a_small_budget_keeps_fewer_seeds_and_then_fewer_clients():
    scenes = made_up_scenes(("lin",), ("source", "fed-ade"), (0, 1, 2), clients=24, steps=40)
    plenty = sizes_of(10**6, scenes)
    assert all("detail" in track and "priors" in track for track in plenty)
    some = sizes_of(12_000, scenes)
    kept = {track["seed"] for track in some if "detail" in track}
    assert 0 in kept
    assert 2 not in kept
    assert all(track["curves"] for track in some), "curves are always there"
    few = sizes_of(3_000, scenes)
    assert {track["seed"] for track in few if "detail" in track} == {0}
    (thin,) = {track["detail"]["one_in"] for track in few if "detail" in track}
    assert thin > 1
    clients = counted(few[0]["detail"]["clients"])
    assert clients == list(range(0, 24, thin))


def test_a_track_that_cannot_be_read_is_told_and_hides_no_other():
    def broken():
        raise FedadeError("cells/1/trace.parquet is not a readable trace")

    scene = made_up_scenes(("lin",), ("source", "fed-ade"), (0,), **SMALL)[0]
    packed = pack([replace(scene, recordings=[replace(scene.recordings[0], read=broken), scene.recordings[1]])])
    assert packed.broken == ["cells/1/trace.parquet is not a readable trace"]
    assert [track["method"] for track in packed.index["scenes"][0]["tracks"]] == ["fed-ade"]


def test_a_table_that_is_no_trace_is_named():
    table = made_up_trace("fed-ade", 0, "lin", **SMALL)
    with pytest.raises(FedadeError, match=r"x\.parquet is no trace: it lacks n, accuracy_pre"):
        complete(table.drop_columns(["n", "accuracy_pre"]), Path("x.parquet"))
    with pytest.raises(FedadeError, match="holds no rows"):
        complete(table.slice(0, 0), Path("x.parquet"))


def test_a_page_of_a_whole_benchmark_stays_small_apart_from_single_clients():
    # Ten methods, four schedules, three seeds, 100 timesteps. Single clients have a budget of 4.4 MB on top of this.
    scenes = made_up_scenes(("lin", "sin", "squ", "ber"), clients=3)
    page = made_up_page(scenes, pack(scenes, []))
    assert len(page.encode()) + sum(tier.characters for tier in TIERS) < 5_000_000


@pytest.mark.slow
def test_a_page_of_a_whole_benchmark_is_under_five_megabytes():
    scenes = made_up_scenes(("lin", "sin", "squ", "ber"), PAPER, (0, 1, 2), clients=100, steps=100)
    assert len(made_up_page(scenes).encode()) < 5_000_000
