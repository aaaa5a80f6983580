"""Slow references that read like their definitions, and models of other architectures."""

from __future__ import annotations

import torch
from transformers import (
    FalconMambaConfig,
    FalconMambaForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)


def _sizes(words: int) -> dict[str, object]:
    return {
        "vocab_size": words, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "initializer_range": 0.3,
    }  # fmt: skip


def _qwen2(words: int):
    torch.manual_seed(1)
    return Qwen2ForCausalLM(Qwen2Config(**_sizes(words))).eval()


def _gemma2(words: int, window: int = 64):
    torch.manual_seed(1)
    config = Gemma2Config(**_sizes(words), head_dim=8, sliding_window=window)
    return Gemma2ForCausalLM(config).eval()


def _mistral(words: int, window: int | None = None):
    torch.manual_seed(1)
    return MistralForCausalLM(MistralConfig(**_sizes(words), sliding_window=window)).eval()


def _gpt2(words: int):
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=words, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3
    )
    return GPT2LMHeadModel(config).eval()


other_models = {"qwen2": _qwen2, "gemma2": _gemma2, "mistral": _mistral, "gpt2": _gpt2}
windowed_models = {
    "gemma2, window 6": lambda words: _gemma2(words, 6),
    "mistral, window 6": lambda words: _mistral(words, 6),
}


def state_space_model(words: int):
    """A model without keys and values."""
    torch.manual_seed(1)
    config = FalconMambaConfig(
        vocab_size=words, hidden_size=32, num_hidden_layers=2, state_size=8, initializer_range=0.3
    )
    return FalconMambaForCausalLM(config).eval()


def divergence_of(clean, moved, pfinal: str, target) -> torch.Tensor:
    """One row's statistic from logits (A, V), written out."""
    if pfinal == "answer_mean":
        a, b = clean.mean(0).log_softmax(-1), moved.mean(0).log_softmax(-1)
        return (a.exp() * (a - b)).sum()
    a, b = clean.log_softmax(-1), moved.log_softmax(-1)
    kl = (a.exp() * (a - b)).sum(-1)
    fall = (a - b)[torch.arange(len(target)), target].mean()
    return {"last": kl[0], "answer_kl": kl.sum(), "answer_joint": fall}[pfinal]


def real_rows(batch):
    """Row number, its real columns, ids, answer columns and reasoning columns, unpadded."""
    for row in range(len(batch.input_ids)):
        real = torch.nonzero(batch.attention_mask[row]).flatten()
        answer = torch.nonzero(batch.probe.answer[row, real]).flatten()
        thinking = torch.nonzero(batch.probe.reasoning[row, real]).flatten()
        if len(answer):
            yield row, real, batch.input_ids[row, real], answer, thinking


def naive(model, batch, replacement: int, pfinal: str) -> torch.Tensor:
    """OAR-P as its definition reads: one whole forward pass for each token, no cache, no batch."""
    result = torch.zeros(batch.input_ids.shape)
    for row, real, ids, answer, thinking in real_rows(batch):
        clean = model(ids[None]).logits[0, answer - 1]
        for place in thinking:
            changed = ids.clone()
            changed[place] = replacement
            moved = model(changed[None]).logits[0, answer - 1]
            value = divergence_of(clean, moved, pfinal, ids[answer])
            result[row, real[place]] = value.clamp(min=0)
    return result


def held_direct(model, batch, replacement: int, count: int, mediators: str) -> torch.Tensor:
    """OAR-D by whole passes: after each layer every token that isn't fed gets its clean state."""
    result = torch.zeros(batch.input_ids.shape)
    for row, real, ids, answer, thinking in real_rows(batch):
        states: list[torch.Tensor] = []
        keep = lambda module, args, out, states=states: states.append(out)  # noqa: E731
        hooks = [layer.register_forward_hook(keep) for layer in model.model.layers]
        clean = model(ids[None]).logits[0, answer - 1]
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation("eager")
        weights = torch.stack(model(ids[None], output_attentions=True).attentions)
        model.set_attn_implementation("sdpa")
        strongest = weights[:, 0].amax(1)
        reach = torch.zeros(strongest.shape[1:])
        for reads in range(len(strongest)):
            for is_read in range(reads + 1, len(strongest)):
                to_answer = strongest[is_read][answer - 1].mean(0)
                reach += strongest[reads] * to_answer[:, None]
        region = int(thinking.max()) + 1
        for place in thinking.tolist():
            between = list(range(place + 1, region))
            if mediators == "attention":
                between.sort(key=lambda u: -float(reach[u, place]))
            fed = {place, *between[:count], *range(region, len(ids))}
            held = torch.tensor([c not in fed for c in range(len(ids))])
            number = iter(range(len(states)))

            def hold(module, args, out, held=held, number=number, states=states):
                return torch.where(held[None, :, None], states[next(number)], out)

            hooks = [layer.register_forward_hook(hold) for layer in model.model.layers]
            changed = ids.clone()
            changed[place] = replacement
            moved = model(changed[None]).logits[0, answer - 1]
            for hook in hooks:
                hook.remove()
            value = divergence_of(clean, moved, "answer_mean", ids[answer])
            result[row, real[place]] = value.clamp(min=0)
    return result
