"""A tiny model that reads any text, and stand-ins for the seven test sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROWS = {
    "gsm8k": 1319, "math500": 500, "aime24": 30, "aime25": 30, "amc23": 40, "minerva_math": 272,
    "olympiadbench": 675,
}  # fmt: skip

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama over bytes with a chat template, as a checkpoint's folder."""
    folder = tmp_path_factory.mktemp("byte-model")
    words = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4096,
        pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout and the row counts of the test sets with sums in place of their problems."""
    folder = tmp_path_factory.mktemp("data")
    for name, count in ROWS.items():
        rows = [
            {"id": f"{name}-{i}", "problem": f"What is {i} plus {i + 3}?", "answer": str(2 * i + 3)}
            for i in range(count)
        ]
        if name == "minerva_math":
            rows[0]["answer"], rows[1]["answer"], rows[2]["answer"] = "1.6e-19", "4.5e33", "x + 1"
        if name == "olympiadbench":
            rows[0] |= {"answer": "4.2", "tolerance": "1e-1"}
        (folder / name).mkdir()
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name / "test.jsonl").write_text(lines)
    return folder
