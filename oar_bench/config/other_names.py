"""What other tools call a key of a recipe or an option, and what it is called here.

Only for the mend of an error: nothing is accepted under another name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

TRL_KEYS = {
    "attn_implementation": "model.attention",
    "beta": "train.kl_beta",
    "epsilon": "train.clip_eps_low",
    "epsilon_high": "train.clip_eps_high",
    "generation_batch_size": "train.prompts_per_step",
    "gradient_accumulation_steps": "train.prompts_per_step",
    "gradient_checkpointing": "model.gradient_checkpointing",
    "learning_rate": "train.lr",
    "lr_scheduler_type": "train.lr_schedule",
    "mask_truncated_completions": "train.mask_truncated",
    "max_completion_length": "train.max_new_tokens",
    "max_prompt_length": "data.max_prompt_tokens",
    "max_steps": "train.steps",
    "model_name_or_path": "model.path",
    "num_generations": "train.group_size",
    "num_train_epochs": "train.steps",
    "per_device_train_batch_size": "train.micro_batch_size",
    "save_steps": "train.save_every",
    "steps_per_generation": "train.mini_batches",
    "torch_dtype": "model.dtype",
    "use_vllm": "rollout.engine",
    "vllm_gpu_memory_utilization": "rollout.gpu_memory",
    "vllm_importance_sampling_cap": "train.tis_cap",
    "warmup_ratio": "train.warmup_steps",
}
"""Arguments of TRL's GRPOConfig and the key of a recipe that sets the same thing."""

TRL_OPTIONS = {"output_dir": "--out", "report_to": "--log", "seed": "--seed"}
"""Arguments of TRL's that are no keys of a recipe: options of `oar-bench train`."""

OPTIONS = {
    "device": ("--engine-arg", "--engine-arg device=DEVICE"),
    "gen-kwargs": ("--temperature", "--temperature, --top-p, --max-new-tokens"),
    "log-samples": ("--samples", "nothing to ask for: every response is kept"),
    "num-fewshot": ("--fewshot", "--fewshot"),
    "output-dir": ("--out", "--out"),
    "output-path": ("--out", "--out"),
    "report-to": ("--log", "--log"),
    "resume-from-checkpoint": ("--resume", "--resume"),
    "apply-chat-template": ("--chat-template", "--chat-template"),
    "system-instruction": ("--system", "--system"),
}
"""Options of lm-eval and TRL: the option of ours without which the words make no sense, and the
words. `--samples` and `--system` name the commands that sample."""


def key_here(place: str) -> str:
    """The mend for an unknown key, by its place in a recipe; empty where TRL has no such name.

    >>> key_here("train.num_generations")
    "TRL's num_generations is train.group_size here"
    >>> key_here("train.report_to"), key_here("warmstart.learning_rate")
    ("TRL's report_to is the option --log here", '')
    """
    section, _, name = place.rpartition(".")
    if section not in ("", "data", "model", "rollout", "train"):
        return ""
    if name in TRL_OPTIONS:
        return f"TRL's {name} is the option {TRL_OPTIONS[name]} here"
    return f"TRL's {name} is {TRL_KEYS[name]} here" if name in TRL_KEYS else ""


def option_here(given: str, known: Collection[str]) -> str:
    """What the option of another tool is for a command with the `known` options; maybe empty.

    >>> option_here("--output_path", ["--out"]), option_here("--output_path", ["--json"])
    ('--out', '')
    >>> option_here("--learning-rate", ["--set"])
    '--set train.lr=...'
    """
    name = given.lstrip("-").replace("_", "-")
    needed, words = OPTIONS.get(name, ("", ""))
    key = TRL_KEYS.get(name.replace("-", "_"))
    if key and "--set" in known:
        return f"--set {key}=..."
    return words if needed in known else ""


def usage_line(error: Any) -> str:
    """What a usage error of the command line says; an option of another tool by its name here."""
    context, said = getattr(error, "ctx", None), error.format_message().rstrip(".")
    if not context:
        return str(said)
    if type(error).__name__ == "NoSuchOption":
        known = {name for option in context.command.params for name in option.opts}
        if here := option_here(error.option_name, known):
            said = f"No such option: {error.option_name} (here: {here})"
    return f"{said}; see `{context.command_path} --help`"
