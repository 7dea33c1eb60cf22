"""What a user gets wrong is told in one clear line."""

import os

import numpy as np
import pytest

from .conftest import TINY

BAD = [
    (["run", "nonsense"], "no preset and no file is called 'nonsense'"),
    (["run", "--method", "fed-abe"], "did you mean fed-ade?"),
    (["run", "--set", "scenario.alpha=-1"], "scenario.alpha: input should be greater than 0 (given: -1)"),
    (["run", "--set", "scenario.alpha=much"], "scenario.alpha: input should be a valid number"),
    (["run", "--set", "scenario.alpha=.inf"], "scenario.alpha: input should be a finite number"),
    (["run", "--method", "tent", "--set", "tent.learning_rate=.inf"], "input should be a finite number"),
    (["run", "--set", "scenario.alfa=1"], "scenario.alfa: there is no such setting of scenario; did you mean alpha?"),
    (["run", "--set", "scenario.pretraining.epoch=1"], "of scenario.pretraining; did you mean epochs?"),
    (["run", "--set", "scenarios.alpha=1"], "scenarios: there is no such setting; did you mean scenario?"),
    (["run", "--set", "fed-ade.rate.hihg=1"], "there is no such setting of fed-ade.rate; did you mean high?"),
    (["run", "--set", "scenario=3"], "scenario: input should be a group of settings (given: 3)"),
    (["run", "--set", "method=3"], "method: input should be a group of settings (given: 3)"),
    (["run", "--set", "federation=3"], "federation: there is no such setting"),
    (["run", "--set", "methods=3"], "methods: input should be a list (given: 3)"),
    (["run", "--set", "methods=source"], "methods: input should be a list (given: 'source')"),
    (["run", "--set", "seeds=3"], "seeds: input should be a list (given: 3)"),
    (["run", "--set", "seeds=[]"], "seeds: list should have at least 1 item"),
    (["run", "--set", "scenario.dataset=5"], "scenario.dataset: input should be a valid string (given: 5)"),
    (["run", "--set", "scenario.model=[mlp]"], "scenario.model: input should be a valid string"),
    (["run", "--set", "scenario.kind=sideways"], "'label', 'covariate', 'both' or 'none'"),
    (["run", "--set", "scenario.num_clients=0"], "scenario.num_clients"),
    (["run", "--set", "scenario.num_clients=1000000000"], "less than or equal to 10000000"),
    (["run", "--set", "protocol.participation=1.5"], "protocol.participation"),
    (["run", "--set", "fed-ade.rate.low=100"], "low 100 > high"),
    (["run", "--set", "fed-ade.speed=1"], "fed-ade.speed: there is no such setting of fed-ade"),
    (["run", "--set", "tent.adaptation_step=1"], "did you mean adaptation_steps?"),
    (["run", "--set", "method.batch_size=1"], "method.batch_size: say which method's, for example fed-ade.batch_size"),
    (["run", "--set", "methods=[{tent: {}, sar: {}}]"], "name one method"),
    (["run", "--set", "methods=[{name: a, tent: {}}, {name: a, sar: {}}]"], "two rows are called 'a'"),
    (["run", "--set", "federation.colour=red"], "federation.colour: there is no such setting"),
    (["run", "--set", "scenario.alpha"], "expected key=value"),
    (["run", "--set", "scenario.dataset=cifer10"], "unknown dataset 'cifer10'"),
    (["run", "--set", "scenario.model=vgg"], "unknown model 'vgg'"),
    (["run", "--set", "scenario.train_size=5000"], "scenario.train_size"),
    (["run", "--set", "execution.precision=bf16"], "execution.precision: bf16 needs a GPU"),
    (["run", "--set", "scenario.personal=[nose.]"], "leaves no personal parameter"),
    (["results", "add", "nothing"], "nothing holds no run and no suite"),
    (["results", "write", "none.md"], "'none.md' does not exist"),
    (["run", "--seed", "-1"], "seeds are whole numbers"),
    (["run", "--device", "cuda"], "no GPU"),
    (["run", "--device", "gpu"], "execution.device: choose cpu, cuda or cuda:NUMBER (given: 'gpu')"),
    (["run", "--resume", "nowhere"], "there is no run in this folder"),
    (["run", *TINY, "--out", "/proc/none"], "cannot write"),
    (["run", "--seed", "99999999999999999999"], "below 2^63"),
    (["run", "--set", "fed-ade.rate.high=.inf"], "fed-ade.rate.high: input should be a finite number"),
    (["run", "--method", "source", "--set", "tent.adaptation_steps=1"], "tent does not run; add --method tent"),
    (["run", "--set", "scenario.reference_size=99999"], "99999 examples are asked for and 350 are held out"),
    (["run", "own"], "scenario.model: none is named; name a function that returns a trained module"),
    (["run", "own", "--set", "scenario.model=import:math:pi"], "import:math:pi cannot be called"),
    (
        ["run", "own", "--set", "scenario.dataset=digits", "--set", "scenario.model=import:no:where"],
        "cannot be imported",
    ),
    (["run", "--set", "scenario.pretraining=never"], "scenario.pretraining: input should be a group of settings"),
    (["flower", "up", "--clients", "2", "--set", "flower.share=[learning_rat]"], "did you mean learning_rate?"),
    (
        ["flower", "up", "--clients", "2", "--set", "flower.share=learning_rate"],
        "flower.share: write everything, or a list",
    ),
    (["flower", "up", "--clients", "2", "--set", "flower.shaer=everything"], "no such setting; did you mean share?"),
    (["report", "nowhere"], "holds no run and no suite"),
    (["run", "--seed", "one"], "'one' is not a valid"),
    (["run", "--colour", "red"], "no such option"),
    (["list", "clouds"], "'clouds' is not one of"),
    (["list"], "Choose from: methods, datasets"),
    (["dance"], "no such command 'dance'"),
    (["data", "where", "cifer10"], "unknown dataset"),
]


def test_a_suggestion_is_made_once(fedade):
    assert fedade("runn").stderr.lower().count("did you mean") == 1


@pytest.mark.parametrize(("words", "told"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_clear_line(fedade, words, told):
    done = fedade(*words)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_what_a_strangers_file_is_quoted_with_reaches_no_terminal_as_a_command(fedade, tmp_path):
    np.savez(tmp_path / "data.npz", **{"\x1b]0;another title\x07\x1b[2Jpictures": np.zeros(3)})
    done = fedade("run", "--set", f"scenario.dataset=arrays:{tmp_path / 'data.npz'}")
    assert done.returncode == 2
    assert "pictures; expected arrays 'inputs' and 'labels'" in done.stderr
    assert done.stderr.strip().isprintable()


def test_settings_that_are_nested_without_an_end_are_refused_in_one_line(fedade, tmp_path):
    (tmp_path / "deep.yaml").write_text("[" * 5000 + "]" * 5000)
    done = fedade("run", str(tmp_path / "deep.yaml"))
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert "deep.yaml is not YAML" in done.stderr


def test_a_few_lines_that_stand_for_megabytes_are_quoted_shortly(fedade, tmp_path):
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 7)]
    (tmp_path / "many.yaml").write_text("\n".join(["a0: &a0 [x]", *levels, "methods: [{fed-ade: *a6}]"]))
    done = fedade("run", str(tmp_path / "many.yaml"))
    assert done.returncode == 2
    (tmp_path / "many.yaml").write_text("\n".join(["a0: &a0 [x]", *levels, "seeds: *a6"]))
    told = fedade("run", str(tmp_path / "many.yaml")).stderr
    assert len(told) < 2000


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["bench", "smoke"],
        ["export", "nothing", "--to", "tensorboard"],
        ["flower", "up"],
        ["flower", "predict", "nothing", "nothing.npy"],
    ],
    ids=" ".join,
)
def test_an_output_below_a_file_is_told_before_all_else(fedade, tmp_path, monkeypatch, words):
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setenv("FEDADE_CACHE", "/proc/none")  # whatever is computed first would stumble over it
    done = fedade(*words, "--out", "taken/below")
    assert done.returncode == 2
    assert "taken is a file; choose another place (on the command line: --out)" in done.stderr


def test_a_run_below_a_file_is_told_before_a_model_is_trained(fedade, tmp_path, monkeypatch):
    (tmp_path / "runs").write_text("mine")
    monkeypatch.setenv("FEDADE_CACHE", "/proc/none")
    for line in (fedade("run", *TINY).stderr, fedade("run", *TINY, "--out", "runs").stderr):
        assert "runs is a file; choose another place (on the command line: --out)" in line


def test_a_read_only_place_is_told_before_a_model_is_trained(fedade, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)  # root may write wherever a disk lets it
    done = fedade("run", *TINY, "--out", "below/it")
    assert done.returncode == 2
    assert f"{tmp_path} is read-only; choose another place (on the command line: --out)" in done.stderr


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_output(fedade, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", "/proc/none")
    done = fedade("run", *TINY, "--method", "source", "--out", "r")
    assert done.returncode == 2
    assert "set FEDADE_CACHE to a folder that can be written" in done.stderr
    assert "--out" not in done.stderr


def arrays(inputs, labels) -> None:
    """`data.npz` in the current folder."""
    np.savez("data.npz", inputs=inputs, labels=labels)


@pytest.mark.parametrize(
    ("inputs", "labels", "told"),
    [
        (np.zeros((40, 4)), np.zeros(40, int), "every example is of class '0'"),
        (np.full((40, 8, 8), 1e6), np.arange(40) % 2, "row 0 has a pixel of 1e+06; scale images to 0 to 1"),
        (np.full((40, 4), np.nan), np.arange(40) % 2, "row 0 holds a value that is not finite"),
        (np.zeros((40, 4)), np.arange(40) % 2, "100 examples are asked for and 10 are held out; set it to 10 or less"),
        (np.zeros((40, 8, 8), np.uint8), np.arange(40) % 2, "100 examples are asked for and 10 are held out"),
    ],
    ids=["one class", "large pixels", "NaN", "few rows", "few grey images"],
)
def test_own_data_that_cannot_be_used_are_one_line(fedade, inputs, labels, told):
    arrays(inputs, labels)
    model = "--set", "scenario.model=import:torch.nn:Identity"
    done = fedade("run", "own", "--set", "scenario.dataset=arrays:data.npz", *model)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.filterwarnings("ignore:.*no more than by chance:RuntimeWarning")
def test_a_failed_start_leaves_the_folder_to_the_corrected_one(fedade, tmp_path):
    arrays(np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2)
    (tmp_path / "users_network.py").write_text(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))\n"
    )
    words = ("run", "own", *TINY, "--set", "scenario.dataset=arrays:data.npz", "--method", "source", "--out", "r")
    model = ("--set", "scenario.model=import:users_network:model")
    assert fedade(*words, *model).returncode == 2, "fewer are held out than are asked for"
    fedade(*words, *model, "--set", "scenario.reference_size=20", check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="whoever is root may write everywhere")
def test_a_cache_that_is_read_only_is_named(fedade, tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir(mode=0o500)
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path / "cache"))
    done = fedade("run", *TINY, "--method", "source", "--out", "r")
    assert "set FEDADE_CACHE to a folder that can be written" in done.stderr
