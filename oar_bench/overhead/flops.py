"""Floating-point operations of a step's phases in closed form (method.md, section 6).

Notation: N weights that every token is multiplied with (all layers' projections, without
embeddings), a = layers x heads x head size, HV weights of the head; a response is laid out as

    P prompt | R reasoning | C answer prefix and answer, the last A of them the answer

L = P + R + C. A multiplication and an addition are two operations; norms, softmax, rotary
positions, sampling and the optimizer (a few operations a weight) aren't counted, nor does torch's
`FlopCounterMode`. Attention is counted over the whole rectangle of queries and keys, as that
counter does: a kernel that skips what a causal mask hides does up to half of it. Dense decoders
only: in a mixture of experts not every weight meets every token.

All functions are for one response; a batch of equal responses costs its number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oar_bench.credit.memory import Sizes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from oar_bench.config import CreditSettings, TrainSettings


@dataclass(frozen=True)
class Work:
    """The three sizes of a decoder that decide its operations: N, a and HV."""

    linear: int
    attention: int
    head: int

    @classmethod
    def of(cls, sizes: Sizes) -> Work:
        """From a config's sizes, for decoders with gated feed-forward layers (Llama, Qwen, ...).

        >>> Work.of(Sizes(layers=2, hidden=8, intermediate=16, heads=4, kv_heads=2, head_size=2,
        ...               vocabulary=10, item=4))  # N = 2 (8 x 16 + 8 x 8 + 3 x 8 x 16)
        Work(linear=1152, attention=16, head=80)
        """
        width = sizes.heads * sizes.head_size
        queries = sizes.hidden * (width + 2 * sizes.kv_heads * sizes.head_size)
        layer = queries + width * sizes.hidden + 3 * sizes.hidden * sizes.intermediate
        return cls(sizes.layers * layer, sizes.layers * width, sizes.hidden * sizes.vocabulary)

    @classmethod
    def of_model(cls, model: PreTrainedModel) -> Work:
        """From a model's own modules: every weight matrix but embeddings and head."""
        sizes = Sizes.of(model.config, model.dtype)
        head = model.get_output_embeddings()
        kinds = ("Linear", "Conv1D")
        layers: list[Any] = [
            module
            for module in model.modules()
            if type(module).__name__ in kinds and module is not head
        ]
        linear = sum(int(module.weight.numel()) for module in layers)
        attention = sizes.layers * sizes.heads * sizes.head_size
        return cls(linear, attention, sizes.hidden * sizes.vocabulary)


@dataclass(frozen=True)
class Layout:
    """Tokens of one response: P, R, C and A.

    >>> layout = Layout(prompt=16, reasoning=59, region=5, answer=4)
    >>> layout.response, layout.length, layout.fed
    (64, 80, 79)
    """

    prompt: int
    reasoning: int
    region: int
    answer: int

    @property
    def response(self) -> int:
        """R + C, the sampled tokens."""
        return self.reasoning + self.region

    @property
    def length(self) -> int:
        """L = P + R + C"""
        return self.prompt + self.response

    @property
    def fed(self) -> int:
        """L - 1: the answer's last token predicts nothing of the answer."""
        return self.length - 1


def forward(work: Work, tokens: int, past: int = 0, logits: int = 0) -> int:
    """A forward pass of n tokens behind a past of b, with logits at k of them.

        2 N n + 4 a n (b + n) + 2 HV k

    Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1, with the head apart.

    >>> forward(Work(10, 2, 6), tokens=3, past=1, logits=2)  # 60 + 4 x 2 x 3 x 4 + 24
    180
    """
    attention = 4 * work.attention * tokens * (past + tokens)
    return 2 * work.linear * tokens + attention + 2 * work.head * logits


def backward(
    work: Work,
    tokens: int,
    past: int = 0,
    logits: int = 0,
    *,
    weights: bool = True,
    fused: bool = True,
) -> int:
    """The backward pass of that forward pass, to weights and inputs or to the inputs only.

        (4 or 2) (N n + HV k) + (10 or 8) a n (b + n)

    Args:
        weights: also the gradient of the weights, which doubles the matrix work.
        fused: an attention kernel that recomputes its scores (sdpa): five matrix products instead
            of the four of plain (eager) attention.

    >>> backward(Work(10, 2, 6), tokens=3, past=1, logits=2)  # 120 + 240 + 48
    408
    >>> backward(Work(10, 2, 6), tokens=3, past=1, logits=2, weights=False, fused=False)
    276
    """
    times = 4 if weights else 2
    attention = (10 if fused else 8) * work.attention * tokens * (past + tokens)
    return times * (work.linear * tokens + work.head * logits) + attention


def rollout(work: Work, layout: Layout) -> int:
    """Sampling: the prompt in one pass, then a pass a token on the cache (the last isn't fed).

        2 N (P + T - 1) + 4 a (P^2 + sum_{i=1}^{T-1} (P + i)) + 2 HV T,    T = R + C

    >>> rollout(Work(10, 2, 6), Layout(prompt=2, reasoning=1, region=2, answer=1))  # 84 + 56 + 64
    204
    """
    prompt, response = layout.prompt, layout.response
    decoded = sum(forward(work, 1, prompt + i, 1) for i in range(response - 1))
    return forward(work, prompt, 0, 1) + decoded


def logprobs(work: Work, layout: Layout, models: int = 2) -> int:
    """Log-probabilities of the response under the policy and the weights the run began from.

        models (2 N L + 4 a L^2 + 2 HV T)

    >>> layout = Layout(prompt=2, reasoning=1, region=2, answer=1)
    >>> logprobs(Work(10, 2, 6), layout)  # 2 (100 + 200 + 36)
    672
    """
    return models * forward(work, layout.length, 0, layout.response)


def update(work: Work, layout: Layout, fused: bool = True) -> int:
    """Forward and backward of the policy's loss, weights included: 6 N a token and attention.

        6 N L + (4 + 10) a L^2 + 6 HV T

    >>> layout = Layout(prompt=2, reasoning=1, region=2, answer=1)
    >>> update(Work(10, 2, 6), layout)  # 300 + 4 x 2 x 25 + 500 + 108
    1108
    """
    shape = (layout.length, 0, layout.response)
    return forward(work, *shape) + backward(work, *shape, fused=fused)


def oar_p(work: Work, layout: Layout) -> int:
    """Exact OAR-P with the clean prefix's keys and values reused, logits at the answer only.

        F(L - 1) + sum_{t=P}^{P+R-1} [2 N n_t + 4 a n_t (L - 1) + 2 HV A],    n_t = L - 1 - t

    that is 2 N R (R/2 + C) and what is smaller: quadratic in R.

    >>> oar_p(Work(10, 0, 0), Layout(prompt=2, reasoning=3, region=2, answer=1))  # 6 + 4 + 3 + 2
    300
    """
    last = layout.prompt + layout.reasoning
    branches = (forward(work, layout.fed - t, t, layout.answer) for t in range(layout.prompt, last))
    return forward(work, layout.fed, 0, layout.answer) + sum(branches)


def oar_p_naive(work: Work, layout: Layout) -> int:
    """OAR-P as it is first written down: a whole sequence with all its logits for each token.

        (R + 1) (2 N L + 4 a L^2 + 2 HV L)

    >>> oar_p_naive(Work(10, 0, 0), Layout(prompt=2, reasoning=3, region=2, answer=1))
    560
    """
    return (layout.reasoning + 1) * forward(work, layout.length, 0, layout.length)


def oar_d(work: Work, layout: Layout, mediators: int | None) -> int:
    """OAR-D: a branch feeds the token, up to m mediators and the answer region on the clean past.

        F(L - 1) + sum_t [2 N n_t + 4 a n_t (L - 1 + n_t) + 2 HV A],
        n_t = C + min(m, tokens between t and the answer region)

    linear in R. `mediators` None takes all of them, which is OAR-P on a longer past.

    >>> layout = Layout(prompt=2, reasoning=3, region=2, answer=1)
    >>> oar_d(Work(10, 0, 0), layout, 0), oar_d(Work(10, 0, 0), layout, 1)  # 6 + 2 3s; + 1 + 1
    (240, 280)
    >>> oar_d(Work(10, 0, 0), layout, None) == oar_p(Work(10, 0, 0), layout)
    True
    """
    total = forward(work, layout.fed, 0, layout.answer)
    for between in range(layout.reasoning):
        count = between if mediators is None else min(mediators, between)
        total += forward(work, layout.region + count, layout.fed, layout.answer)
    return total


def oar_g(work: Work, layout: Layout, draws: int = 1, fused: bool = True) -> int:
    """OAR-G: prompt once; then clean forward, and noisy forward and input-only backward a draw.

        F(P) + (1 + draws) F(n) + draws B(n),    n = R + C - 1 tokens behind the prompt,
        B(n) = 2 N n + 10 a n (P + n) + 2 HV A

    With one draw 6 N a token of the response: linear in R, three forward passes.

    >>> oar_g(Work(10, 0, 0), Layout(prompt=2, reasoning=3, region=2, answer=1))  # 2 + 3 x 4
    280
    """
    shape = (layout.fed - layout.prompt, layout.prompt, layout.answer)
    prompt = forward(work, layout.prompt, 0, 1) if layout.prompt else 0
    draw = forward(work, *shape) + backward(work, *shape, weights=False, fused=fused)
    return prompt + forward(work, *shape) + draws * draw


CREDIT: dict[str, Callable[[Work, Layout, CreditSettings, bool], int]] = {
    "grpo": lambda work, layout, settings, fused: 0,
    "uniform": lambda work, layout, settings, fused: 0,
    "position": lambda work, layout, settings, fused: 0,
    "random": lambda work, layout, settings, fused: 0,
    "oar-p": lambda work, layout, settings, fused: oar_p(work, layout),
    "oar-d": lambda work, layout, settings, fused: oar_d(
        work, layout, None if settings.mediator_count == "all" else settings.mediator_count
    ),
    "oar-g": lambda work, layout, settings, fused: oar_g(work, layout, settings.noise_draws, fused),
}
"""Methods whose credit has a closed form."""


def step_flops(
    work: Work,
    layout: Layout,
    method: str,
    responses: int,
    train: TrainSettings,
    credit: CreditSettings,
    fused: bool = True,
) -> dict[str, int | None]:
    """Operations of each phase of a step on equal responses that all have an advantage.

    None for the credit of a method that has no closed form here.
    """
    source = credit.control_of if method in ("shuffled", "inverted") else method
    of_credit = CREDIT.get(source)
    return {
        "rollout": responses * rollout(work, layout),
        "grading": 0,
        "logprobs": responses * logprobs(work, layout, train.scores_policy + train.scores_start),
        "credit": responses * of_credit(work, layout, credit, fused) if of_credit else None,
        "update": responses * train.num_iterations * update(work, layout, fused),
    }
