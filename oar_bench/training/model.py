"""The built-in model and tokenizer, and the padding of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from oar_bench.config import ModelSettings
from oar_bench.tasks.problems import VOCABULARY


def word_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer for the built-in problems: one token a word, pad different from eos.

    >>> tokenizer = word_tokenizer()
    >>> tokenizer.decode(tokenizer("3 + 4 = 7 ; #### 7")["input_ids"])
    '3 + 4 = 7 ; #### 7'
    """
    words = ["<pad>", "<eos>", "<unk>", *VOCABULARY]
    model = WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    # Joins words by spaces. Said outright, since a loader may put another decoder where none is;
    # the prefix is one that no word begins with ("##", the default, would eat half of "####").
    tokenizer.decoder = WordPieceDecoder(prefix="\x00", cleanup=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        padding_side="left", clean_up_tokenization_spaces=False,
    )  # fmt: skip


def tiny_config(settings: ModelSettings, tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    """The configuration of a Llama of the recipe's sizes.

    Llama, since for Qwen2 checkpoints AutoTokenizer (transformers 5) insists on Qwen's byte-level
    tokenizer, whatever tokenizer was saved with them.
    """
    return LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=settings.hidden,
        intermediate_size=settings.intermediate, num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads, num_key_value_heads=settings.heads,
        max_position_embeddings=settings.max_context, tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )  # fmt: skip


def tiny_model(
    settings: ModelSettings, tokenizer: PreTrainedTokenizerBase, seed: int
) -> LlamaForCausalLM:
    """A Llama of the recipe's sizes with random weights drawn from `seed`, fp32, in eval mode."""
    config = tiny_config(settings, tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.eval()
    return model


def pad_batch(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    pad_id: int,
    *,
    side: str = "left",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Prompt and response of each row in one padded tensor.

    Args:
        side: where a row's padding goes, `left` or `right`. Nothing downstream depends on it.

    Returns:
        input_ids (B, S) int64, attention_mask (B, S) int64, response_mask (B, S) bool. The masks
        are made from lengths, never from ids: pad may be a token that was sampled.

    >>> ids, attention, response = pad_batch([[5, 6], [7]], [[8], [9]], pad_id=0)
    >>> ids.tolist(), response.int().tolist()
    ([[5, 6, 8], [0, 7, 9]], [[0, 0, 1], [0, 0, 1]])
    """
    rows = [[*p, *r] for p, r in zip(prompts, responses, strict=True)]
    width = max(map(len, rows), default=0)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    attention = torch.zeros_like(ids)
    response = torch.zeros(ids.shape, dtype=torch.bool)
    for number, row in enumerate(rows):
        start = width - len(row) if side == "left" else 0
        ids[number, start : start + len(row)] = torch.tensor(row)
        attention[number, start : start + len(row)] = 1
        response[number, start + len(prompts[number]) : start + len(row)] = True
    return ids, attention, response
