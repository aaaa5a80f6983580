"""Several recipes in one command, recipes on a base, and a warm start of each seed."""

from __future__ import annotations

import json

import pytest
import yaml

from oar_bench.config import load_recipe, suite_of
from oar_bench.errors import InputError
from oar_bench.training.warmstart import warmstart_fingerprint


@pytest.fixture
def recipes(tmp_path):
    """Two smoke recipes whose seeds each have a warm start, and a suite of both."""
    small = {
        "base": "smoke",
        "warmstart": {"per_seed": True, "max_steps": 60, "target": 0.01},
        "reproduce": {"methods": ["grpo", "inverted"], "seeds": 2},
    }
    for name in ("one", "two"):
        changes = {"train": {"steps": 2 if name == "one" else 3}}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**small, **changes, "name": name}))
    both = tmp_path / "both.yaml"
    members = [str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")]
    both.write_text(yaml.safe_dump({"name": "both", "recipes": members}))
    return tmp_path


def test_a_suite_reproduces_each_recipe_and_joins_the_comparisons(recipes, call):
    out = recipes / "out"
    done = call("reproduce", str(recipes / "both.yaml"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "all together" in done.stdout
    starts = {}
    for name in ("one", "two"):
        assert (out / name / "index.html").is_file()
        assert (out / name / "start" / "seed-0" / "eval").is_dir()
        for seed in (0, 1):
            for method in ("grpo", "inverted"):
                run = out / name / "runs" / method / f"seed-{seed}" / "run.json"
                prints = json.loads(run.read_text())["fingerprints"]
                starts.setdefault((name, seed), set()).add(prints["start"])
    assert all(len(found) == 1 for found in starts.values())
    assert starts["one", 0] != starts["one", 1]
    page = (out / "report.md").read_text()
    assert page.count("score and paired difference to grpo") == 2
    assert "[one/report.md](one/report.md)" in page
    html = (out / "index.html").read_text()
    assert 'href="two/index.html"' in html
    assert "Content-Security-Policy" in html
    again = call("reproduce", str(recipes / "both.yaml"), "--out", str(out))
    assert again.returncode == 0, again.stderr
    assert (out / "report.md").read_text() == page


def test_runs_of_one_seed_from_unlike_starts_are_refused(recipes, call):
    out = recipes / "out"
    done = call("reproduce", str(recipes / "one.yaml"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    file = out / "runs" / "inverted" / "seed-1" / "run.json"
    about = json.loads(file.read_text())
    about["fingerprints"]["start"] = "another"
    file.write_text(json.dumps(about))
    done = call("report", str(out))
    assert done.returncode == 2
    assert "fingerprints.start is" in done.stderr


def test_seeds_share_a_warm_start_unless_told_otherwise():
    tiny, own = load_recipe("tiny"), load_recipe("tiny-credit-digits")
    assert tiny.of_seed(3) is tiny
    prints = {warmstart_fingerprint(own.of_seed(seed)) for seed in range(8)}
    assert len(prints) == 8


def test_a_recipe_on_a_base_differs_by_what_it_says():
    base, own = load_recipe("tiny").settings(), load_recipe("tiny-credit-digits").settings()
    assert own["train"] == base["train"]
    assert own["credit"] == base["credit"]
    assert (own["family"], own["evaluation"]["task"]) == ("digits", "oar_digits")
    assert own["model"] == {**base["model"], "threads": 1}


def test_shipped_suite_names_two_recipes():
    assert suite_of("tiny-credit") == ["tiny-credit-arithmetic", "tiny-credit-digits"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "x", "recipes": ["tiny"], "train": {}}, "nothing else"),
        ({"name": "x", "recipes": []}, "a list of names is expected"),
        ({"name": "x", "recipes": ["tiny", "tiny"]}, "a list of names is expected"),
        ({"name": "x", "recipes": [3]}, "3 is no recipe"),
        ({"name": "x", "recipes": ["tiny-credit"]}, "'tiny-credit' is no recipe"),
        ({"name": "x", "recipes": ["tinny"]}, "unknown recipe 'tinny'"),
    ],
)
def test_bad_suites(tmp_path, content, message):
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        suite_of(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"base": "tinny", "name": "x"}, "unknown recipe 'tinny'"),
        ({"base": 3, "name": "x"}, "the name of a recipe is expected"),
        ({"base": "tiny-credit-digits", "name": "x"}, "has a base itself"),
        ({"base": "tiny", "name": "x", "train": {"stepps": 3}}, "unknown key 'train.stepps'"),
    ],
)
def test_bad_bases(tmp_path, content, message):
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        load_recipe(str(file))


def test_a_suite_where_a_recipe_is_expected(call, tmp_path):
    done = call("train", "tiny-credit", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "this is a suite of recipes" in done.stderr
