"""TRL's GRPOTrainer with token weights, against TRL's own and against the built-in trainer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.assign import assign
from oar_bench.engines.hf import load_model
from oar_bench.engines.tokens import response_text
from oar_bench.errors import InputError
from oar_bench.tasks.problems import distinct
from oar_bench.training.logprobs import token_logprobs
from oar_bench.training.loss import policy_loss, token_coefficients
from oar_bench.training.model import pad_batch
from oar_bench.training.rollout import probed_batch

trl = pytest.importorskip("trl")
from datasets import Dataset  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from oar_bench.integrations.trl import OARGRPOTrainer, _check_covered  # noqa: E402

LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "luspo", "sapo", "vespo"]
WEIGHTED = {"method": "oar-p", "answer_type": "exact"}


def reward(completions, **_):
    """Neither all equal nor all different within a group."""
    return [float(len(text.split()) % 3) for text in completions]


class Gradients(TrainerCallback):
    """The gradient of each optimizer step, flat."""

    def __init__(self):
        self.of_step = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.of_step.append(torch.cat([p.grad.flatten().clone() for p in model.parameters()]))


class Recording:
    """Keeps what was sampled (before TRL shuffles it), and what each loss was made of."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        self.sampled = [*getattr(self, "sampled", []), dict(batch)]
        return batch

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.parts = [*getattr(self, "parts", []), (dict(inputs), float(loss.detach()))]
        return loss


class Plain(Recording, trl.GRPOTrainer):
    pass


class Weighted(Recording, OARGRPOTrainer):
    pass


@pytest.fixture(scope="module")
def data():
    problems = distinct("arithmetic", "train", 8, 0)
    return Dataset.from_list([{"prompt": problem.prompt} for problem in problems])


@pytest.fixture
def make(start, data, tmp_path):
    def build(kind, *, method=None, answer_type=None, extra=None, **changes):
        settings = {
            "output_dir": str(tmp_path), "per_device_train_batch_size": 4, "num_generations": 4,
            "max_completion_length": 40, "max_steps": 4, "num_iterations": 2, "save_strategy": "no",
            "gradient_accumulation_steps": 2, "learning_rate": 3e-3, "max_grad_norm": 1e9,
            "report_to": [], "bf16": False, "use_cpu": True, "disable_tqdm": True, **changes,
        }  # fmt: skip
        model, tokenizer = load_model(start)
        names = {"method": method, "answer_type": answer_type}
        gradients = Gradients()
        trainer = kind(
            model, reward, trl.GRPOConfig(**settings), data, processing_class=tokenizer,
            callbacks=[gradients], **{k: v for k, v in names.items() if v}, **(extra or {}),
        )  # fmt: skip
        return trainer, gradients

    return build


VARIANTS = [
    *({"loss_type": loss} for loss in LOSSES),
    # One ratio a sequence: TRL then sums (B, 1) where weights make it (B, T), in another order. The
    # small steps keep what that rounds differently from growing along the way.
    {"loss_type": "grpo", "importance_sampling_level": "sequence", "learning_rate": 1e-3},
    {"loss_type": "luspo", "importance_sampling_level": "sequence", "learning_rate": 1e-3},
    {"loss_type": "grpo", "beta": 0.1},
    {"loss_type": "dapo", "mask_truncated_completions": True, "max_completion_length": 12},
    {"loss_type": "dapo", "top_entropy_quantile": 0.5, "entropy_coef": 0.01},
    {"loss_type": "grpo", "off_policy_mask_threshold": 0.01, "delta": 1.5},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda c: "-".join(map(str, c.values())))
def test_uniform_weights_are_trls_own_loss_and_gradient(make, changes):
    # Plain descent: Adam would blow the last bit of a near-zero gradient up to a whole step.
    settings = {"optim": "sgd", "learning_rate": 0.1, **changes}
    plain, own = make(Plain, **settings)
    plain.train()
    weighted, ours = make(Weighted, method="uniform", **settings)
    weighted.train()
    assert weighted.sampled[0]["advantages"].shape == weighted.sampled[0]["completion_ids"].shape
    losses = [loss for _, loss in plain.parts]
    # luspo sums over a response's tokens (40 at most) where the others take a mean.
    near = 1e-6 * (40 if changes["loss_type"] == "luspo" else 1)
    assert [loss for _, loss in weighted.parts] == pytest.approx(losses, abs=near)
    assert len(losses) == 8
    assert len(own.of_step) == len(ours.of_step) == 4
    # A batch may hold only groups of equal rewards: not each step has a gradient.
    assert sum(float(a.abs().max()) > 1e-4 for a in own.of_step) >= 2
    for a, b in zip(own.of_step, ours.of_step, strict=True):
        assert float((a - b).abs().max()) < near


@pytest.mark.parametrize("loss_type", LOSSES)
def test_oar_p_weights_change_the_gradient(make, loss_type):
    changes = {"loss_type": loss_type, "max_steps": 1}
    plain, own = make(Plain, **changes)
    plain.train()
    weighted, ours = make(Weighted, **WEIGHTED, **changes)
    weighted.train()
    assert torch.equal(plain.sampled[0]["completion_ids"], weighted.sampled[0]["completion_ids"])
    [a], [b] = own.of_step, ours.of_step
    assert float((a - b).norm() / a.norm()) > 0.05


def test_the_weights_are_those_of_assign(make):
    trainer, _ = make(Weighted, **WEIGHTED, max_steps=1)
    trainer.train()
    [sampled] = trainer.sampled
    plain = torch.tensor(list(trainer._logs["advantages"]))  # (B,), as TRL made them
    prompts, responses = (
        [ids[mask.bool()].tolist() for ids, mask in zip(*pair, strict=True)]
        for pair in (
            (sampled["prompt_ids"], sampled["prompt_mask"]),
            (sampled["completion_ids"], sampled["completion_mask"]),
        )
    )
    assert len({len(ids) for ids in responses}) > 1  # padding there is
    model, tokenizer = load_model(trainer_start(trainer))
    padded = pad_batch(prompts, responses, tokenizer.pad_token_id, side="right")
    texts = [response_text(tokenizer, ids) for ids in responses]
    batch = probed_batch(tokenizer, texts, responses, padded, [0] * len(texts), "exact")
    expected = assign("oar-p", model, batch, CreditSettings(), tokenizer.pad_token_id).weights
    rows = torch.nonzero(plain != 0).flatten().tolist()
    assert sum(bool(batch.probe.found[i]) for i in rows) >= 2
    for i in rows:
        got = sampled["advantages"][i][sampled["completion_mask"][i].bool()] / plain[i]
        torch.testing.assert_close(got, expected[i][padded[2][i]], atol=2e-4, rtol=1e-4)
    assert float(expected[padded[2]].max()) > 1.2


def trainer_start(trainer):
    return trainer.processing_class.name_or_path


def test_rows_keep_their_weights_through_shuffling_and_splitting(make):
    trainer, _ = make(Weighted, **WEIGHTED, steps_per_generation=4, max_steps=4)
    trainer.train()
    [sampled] = trainer.sampled
    place = {}
    for i in range(16):
        key = row_key(sampled, i)
        place.setdefault(key, []).append(i)
    order = []
    for inputs, _ in trainer.parts:
        for i in range(len(inputs["advantages"])):
            [first, *_] = place[row_key(inputs, i)]
            assert torch.equal(inputs["advantages"][i], sampled["advantages"][first])
            order.append(first)
    assert len(order) == 2 * 16  # num_iterations passes over the batch
    assert order[:16] != sorted(order[:16])
    assert sorted(order[:16]) == sorted(order[16:])
    assert float((sampled["advantages"].amax(1) - sampled["advantages"].amin(1)).max()) > 0.5


def row_key(batch, i):
    return (*batch["prompt_ids"][i].tolist(), -1, *batch["completion_ids"][i].tolist())


@pytest.mark.parametrize(
    ("loss_type", "beta"),
    [("grpo", 0.0), ("dapo", 0.0), ("dr_grpo", 0.0), ("cispo", 0.0), ("grpo", 0.2), ("cispo", 0.2)],
)
def test_the_loss_is_the_built_in_trainers(make, loss_type, beta):
    """On the second pass over a batch, where ratios differ from 1 and some are clipped."""
    # What TRL calls epsilon_high is cispo's bound itself; ours is its distance from 1.
    bound = {"epsilon_high": 1.2} if loss_type == "cispo" else {}
    trainer, _ = make(
        Weighted, **WEIGHTED, loss_type=loss_type, max_steps=2, gradient_accumulation_steps=1,
        per_device_train_batch_size=8, learning_rate=1e-2, beta=beta, **bound,
        use_bias_correction_kl=False,
    )  # fmt: skip
    found = []
    theirs = trainer._compute_loss

    def compare(model, inputs):
        mask = torch.cat([torch.zeros_like(inputs["prompt_mask"]), inputs["completion_mask"]], 1)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        with torch.no_grad():
            logprobs, _ = token_logprobs(model, ids, attention, mask.bool())
        width = inputs["prompt_ids"].shape[1]
        sign = inputs["advantages"].sum(1).sign()  # of the row's one advantage
        own = policy_loss(
            logprobs[:, width:], inputs["old_per_token_logps"], sign,
            inputs["advantages"].abs(), token_coefficients(mask.bool(), loss_type, 40)[:, width:],
            clip_eps_low=0.2, clip_eps_high=0.2, loss_type=loss_type, kl_beta=beta,
            ref_logprobs=inputs.get("ref_per_token_logps"),
        )  # fmt: skip
        loss = theirs(model, inputs)
        found.append((float(loss.detach()), float(own.loss), own.clipped_tokens))
        return loss

    trainer._compute_loss = compare
    trainer.train()
    assert len(found) == 2
    assert found[1][2] > 0
    for loss, own, _ in found:
        assert loss == pytest.approx(own, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("method", ["oar-d", "oar-g", "oar-gf", "attention", "entropy"])
def test_other_importances_run_on_trls_model(make, method):
    """They ask the model for more: gradients of embeddings, attentions, states of the cache."""
    trainer, gradients = make(Weighted, method=method, answer_type="exact", max_steps=1)
    trainer.train()
    advantages = trainer.sampled[0]["advantages"]
    assert float((advantages.amax(1) - advantages.amin(1)).max()) > 0.1
    assert float(gradients.of_step[0].abs().max()) > 1e-4


def test_metrics_of_the_weights_are_logged(make):
    trainer, _ = make(Weighted, **WEIGHTED, max_steps=1, logging_steps=1)
    trainer.train()
    row = trainer.state.log_history[0]
    assert row["oar/weight_mean"] == pytest.approx(1, abs=1e-4)  # mass kept
    assert row["oar/weight_max"] > 1.2
    assert 0 < row["oar/weight_ess"] < 1
    assert 0 <= row["oar/frac_no_probe"] < 1
    assert trainer.model.training


def test_controls_draw_anew_for_each_batch_and_alike_in_each_run(make):
    def weights():
        trainer, _ = make(
            Weighted, method="random", answer_type="exact", num_iterations=1, learning_rate=0.0,
            max_steps=2,
        )  # fmt: skip
        seeds = []
        draw = trainer._credit_seeds
        trainer._credit_seeds = lambda rows: seeds.append(draw(rows)) or seeds[-1]
        trainer.train()
        return seeds, [batch["advantages"] for batch in trainer.sampled]

    (seeds, first), (again, second) = weights(), weights()
    assert seeds == again
    assert len(set(seeds[0] + seeds[1])) == 16
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_nothing_is_weighted_in_evaluation(make, data):
    trainer, _ = make(
        Weighted, **WEIGHTED, per_device_eval_batch_size=4, extra={"eval_dataset": data.select([0])}
    )
    metrics = trainer.evaluate()
    assert trainer.sampled[0]["advantages"].dim() == 1
    assert "eval_loss" in metrics


def rollout(mask: bool):
    def sample(prompts, trainer):
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        texts = ["so " * (i % 3) + "3 + 2 = 5 ; #### 5" for i in range(len(prompts))]
        answers = [[*trainer.processing_class(text)["input_ids"], 1] for text in texts]
        made = {"prompt_ids": ids, "completion_ids": answers, "logprobs": None}
        return {**made, "env_mask": [[1] * len(a) for a in answers]} if mask else made

    return sample


def test_rollouts_from_elsewhere_are_weighted(make):
    """As with vLLM: the ids come from another sampler, the weights from the policy."""
    extra = {"rollout_func": rollout(mask=False)}
    trainer, _ = make(Weighted, **WEIGHTED, extra=extra, max_steps=1)
    trainer.train()
    advantages = trainer.sampled[0]["advantages"]
    assert float((advantages.amax(1) - advantages.amin(1)).max()) > 0.1


def test_what_is_not_covered_is_refused(make):
    for extra in ({"tools": [len]}, {"environment_factory": object}):
        with pytest.raises(InputError, match=r"token weights don't cover it; use trl.GRPOTrainer"):
            make(Weighted, **WEIGHTED, extra=extra)
    with pytest.raises(InputError, match="did you mean 'oar-p'"):
        make(Weighted, method="oar_p")
    with pytest.raises(InputError, match="unknown answer type 'maths'"):
        make(Weighted, method="oar-p", answer_type="maths")
    with pytest.raises(InputError, match=r"credit: a dict is given; write CreditSettings"):
        make(Weighted, method="oar-p", extra={"credit": {"q": 0.3}})
    trainer, _ = make(Weighted, **WEIGHTED, extra={"rollout_func": rollout(mask=True)})
    with pytest.raises(InputError, match="env_mask"):
        trainer.train()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"is_fsdp_enabled": True}, "FSDP"),
        ({"_is_vlm": True}, "a model with images"),
        ({"plugin": SimpleNamespace(zero_stage=3)}, "DeepSpeed ZeRO-3"),
    ],
)
def test_sharded_parameters_are_refused(changes, named):
    fine = {"tools": [], "_is_vlm": False, "is_fsdp_enabled": False}
    stage_2 = SimpleNamespace(zero_stage=2)

    def trainer(plugin=stage_2, **other):
        accelerator = SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin))
        return SimpleNamespace(**{**fine, **other}, accelerator=accelerator)

    _check_covered(trainer())
    with pytest.raises(InputError, match=named):
        _check_covered(trainer(**changes))
