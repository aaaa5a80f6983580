"""Runs that learnt from saved rollouts beside runs that sample: their costs aren't comparable."""

from oar_bench.reporting import write_report
from oar_bench.reporting.claims_source import gather
from oar_bench.reporting.frames import load
from oar_bench.reporting.overhead import STEP
from tests.regression.made import change
from tests.reporting.synthetic import make_out


def test_a_replay_is_compared_with_no_step_that_samples(tmp_path):
    few = make_out(tmp_path / "OUT", ("grpo", "oar-p"), (0, 1), problems=8, samples=2, steps=3)
    for path in few.glob("runs/oar-p/*/run.json"):
        change(path, fingerprints__rollouts="r1")
    allow = ["fingerprints.rollouts"]
    report = write_report(few, tmp_path / "r", allow=allow).markdown.read_text()
    assert "Trained on saved rollouts, sampling nothing: oar-p." in report
    assert "A training step takes" not in report
    [costs] = gather(load(few, allow), few).evidence.costs
    assert costs.find("oar-p", STEP) == costs.find("oar-p", "rollout") == {}
    assert {*costs.find("oar-p", "credit")[None].seconds} == {0, 1}
    assert {*costs.find("grpo", STEP)[None].seconds} == {0, 1}
