"""What a recipe may hold: its sections, their values and ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Importance = Literal[
    "oar-p", "oar-d", "oar-g", "oar-g0", "oar-gp", "oar-gf",
    "oar-p-span", "oar-p-sample", "oar-p-preselect", "entropy", "attention", "position", "random",
]  # fmt: skip
Method = Literal["grpo", "uniform", Importance, "shuffled", "inverted"]
IMPORTANCE_METHODS: tuple[str, ...] = get_args(Importance)
METHODS: tuple[str, ...] = ("grpo", "uniform", *IMPORTANCE_METHODS, "shuffled", "inverted")
Pfinal = Literal["last", "answer_mean", "answer_kl", "answer_joint"]
DataSet = Literal["gsm8k", "math", "dapo-17k", "deepmath"]
PROMPTS = ("boxed", "gsm8k", "plain")

Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """Base of every part of a recipe: unknown keys refused, values fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LoraSettings(Section):
    """Low-rank adapters instead of the full weights (peft; extra `[lora]`)."""

    rank: Positive = 32
    alpha: Positive = 64
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Names of the layers that get an adapter."""


class ModelSettings(Section):
    """The model to train: a small one made from scratch, or a checkpoint's folder."""

    path: str | None = None
    """Folder of a Hugging Face checkpoint; absent: a Llama of the sizes below is made."""
    layers: Positive = 3
    hidden: Positive = 96
    heads: Positive = 4
    intermediate: Positive = 256
    max_context: Positive = 128
    """Longest prompt and response together, in tokens."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """CPU threads. Part of the recipe because sums differ in their last bits with it."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights; auto: as saved. Weights in bfloat16 are updated through float32 copies."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    """transformers' implementation; null: its default for the model."""
    gradient_checkpointing: bool = False
    """Keep each layer's input alone for the backward pass and run the layer again there."""
    lora: LoraSettings | None = None

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSettings:
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden must be a multiple of 2 x heads ({2 * self.heads})")
        return self


SIZES = ("layers", "hidden", "heads", "intermediate", "max_context", "threads")
"""What of the model's settings a start made from scratch depends on."""


class WarmStartSettings(Section):
    """Supervised training on worked solutions until the sampled accuracy reaches `target`."""

    target: Rate = 0.3
    lr: Rate = 3e-3
    weight_decay: NonNegative = 0.01
    batch_size: Positive = 64
    warmup_steps: Positive = 50
    max_steps: Positive = 1200
    check_every: Positive = 20
    check_problems: Positive = 64
    check_samples: Positive = 4
    seed: int = 0
    per_seed: bool = False
    """Give each training seed a warm start of its own, so that differences hold over starts too."""


class TrainSettings(Section):
    """GRPO (method.md section 1), each setting under the name the field uses."""

    steps: Positive = 30
    prompts_per_step: Positive = 16
    group_size: Annotated[int, Field(ge=2)] = 8
    num_iterations: Positive = 1
    """Passes over each rollout batch."""
    mini_batches: Positive = 1
    """Optimizer steps of a pass: the batch's groups are dealt out to so many."""
    micro_batch_size: Positive = 128
    """Responses a forward and backward pass at most; changes memory, never the gradient."""
    micro_batch_tokens: Positive | None = None
    """Tokens of such a pass at most, padding included: responses of like length go together."""
    logits_mib: Positive = 1024
    """MiB for logits at once; beyond it they are made in parts. Changes no result."""
    lr: Rate = 3e-4
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    max_new_tokens: Positive = 58
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Rate = 1.0
    loss_type: Literal["grpo", "dapo", "dr_grpo", "cispo"] = "grpo"
    scale_rewards: bool = True
    """Divide advantages by the group's standard deviation (never for dr_grpo)."""
    clip_eps_low: Share = 0.2
    clip_eps_high: NonNegative = 0.2
    kl_beta: NonNegative = 0.0
    dynamic_sampling: Annotated[int, Field(ge=0)] = 0
    """Further draws of problems a step, until so many groups have a signal (DAPO); 0: none."""
    tis_cap: Annotated[float, Field(gt=0)] | None = 2.0
    """Cap of the factor that corrects for a sampler other than the trainer; null: no correction."""
    track: list[Literal["entropy", "kl_start"]] = ["entropy", "kl_start"]
    """Metrics that cost a forward pass of the policy, or of the weights the run began from."""
    mask_truncated: bool = False
    save_every: Positive = 10

    @property
    def scores_start(self) -> bool:
        """Whether a step scores its responses by the weights that the run began from."""
        return self.kl_beta > 0 or "kl_start" in self.track

    @property
    def scores_policy(self) -> bool:
        """Whether a step scores its responses before the update.

        A single optimizer step needs no such pass: the update's own pass gives the same values.
        """
        several = self.num_iterations * self.mini_batches > 1
        return several or self.scores_start or "entropy" in self.track


class PassRateSettings(Section):
    """Which problems are neither too hard nor too easy for a model that was asked them before."""

    file: str
    """A folder of samples and scores, or JSON lines with `id` and `pass_rate`."""
    low: Share = 0.1
    high: Share = 0.9

    @model_validator(mode="after")
    def _low_is_lower(self) -> PassRateSettings:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self


class DataSettings(Section):
    """Problems to train on instead of a built-in family's; see docs/data.md."""

    name: DataSet | None = None
    """A known set: from the data folder if there is one, else from the hub."""
    path: str | None = None
    """A file of JSON lines with `id`, `problem` and `answer`, instead of a known set."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Of a known set on the hub, instead of the one that is pinned."""
    answer_type: Literal["math", "number", "choice", "exact"] | None = None
    """How answers are compared; absent: as the known set says, else `math`."""
    extract: Literal["auto", "boxed", "gsm8k"] | None = None
    """Where an answer is looked for; absent: as the known set says, else `auto`."""
    prompt: str = "boxed"
    """`boxed`, `gsm8k`, `plain`, or a text in which `{problem}` stands for the problem."""
    chat_template: bool = False
    """Ask through the chat template of the model's tokenizer."""
    system: Annotated[str, Field(min_length=1)] | None = None
    """System prompt, with `chat_template`."""
    dedup: bool = True
    """Keep the first of several problems of one text."""
    pass_rate: PassRateSettings | None = None
    overlap: list[Annotated[str, Field(min_length=1)]] = []
    """Tasks and groups whose test problems are looked for among the training problems."""
    ngram: Positive = 13
    """Words in a row that a training and a test problem must share to overlap."""
    drop_overlap: bool = False
    max_prompt_tokens: Positive | None = None
    """Leave out problems whose prompt is longer."""

    @model_validator(mode="after")
    def _one_source(self) -> DataSettings:
        if (self.name is None) == (self.path is None):
            raise ValueError(f"give either a name ({', '.join(get_args(DataSet))}) or a path")
        if self.path is not None and self.revision is not None:
            raise ValueError("revision: only a set from the hub has one, not a path")
        if self.prompt not in PROMPTS and "{problem}" not in self.prompt:
            known = ", ".join(PROMPTS)
            raise ValueError(f"prompt: {self.prompt!r} has no {{problem}} in it, nor is it {known}")
        if self.system is not None and not self.chat_template:
            raise ValueError("system: a system prompt needs chat_template: true")
        if self.drop_overlap and not self.overlap:
            raise ValueError("drop_overlap: there is no overlap to drop, name tasks by overlap")
        return self


class RolloutSettings(Section):
    """Who samples the responses that training learns from (docs/rollouts.md)."""

    engine: Literal["hf", "vllm", "server"] = "hf"
    """The model being trained; vLLM, started by the run; or a vLLM server that runs already. What
    an engine has no use for is ignored, so that a recipe runs on each by changing this key."""
    batch_size: Positive = 1024
    """Most responses sampled at once; changes memory and speed, no token of the hf engine."""
    dtype: Literal["model", "float32", "bfloat16", "float16"] = "model"
    """Of vLLM's copy of the weights; `model`: the trainer's own."""
    engine_args: dict[str, Any] = {}
    """More arguments of vLLM's `LLM`, such as {tensor_parallel_size: 2}; they go over ours."""
    gpu_memory: Rate = 0.4
    """Share of the GPU's memory that vLLM takes, weights included."""
    sleep: bool = False
    """Have vLLM give its GPU memory back while the trainer learns."""
    exchange: str | None = None
    """Folder through which weights reach the engine; absent: shared memory. For a server, one that
    it sees under the same path."""
    base_url: str | None = None
    """The server's address, such as http://127.0.0.1:8000/v1."""
    model_name: str | None = None
    """The model's name on the server; absent: its only one."""
    sync: bool = True
    """Give the server the weights of each step; false: it samples with those that it has, and
    metrics.jsonl says how old they are."""

    @model_validator(mode="after")
    def _server_has_an_address(self) -> RolloutSettings:
        if self.engine == "server" and self.base_url is None:
            raise ValueError("engine: server needs base_url")
        return self


PLACES = ("gpu_memory", "sleep", "exchange", "base_url", "model_name")
"""Where the engine of the rollouts is and how much it may take: they change no number."""


class CreditSettings(Section):
    """From a response to its token weights (method.md section 2)."""

    probe: Literal["own"] = "own"
    pfinal: Pfinal = "answer_mean"
    replacement: Literal["pad"] | Annotated[int, Field(ge=0)] = "pad"
    """What takes a token's place: the pad token, or a token's id."""
    sigma: Annotated[float, Field(gt=0)] = 1e-3
    sigma_scale: Literal["absolute", "relative"] = "absolute"
    noise_draws: Positive = 1
    fisher_top_k: Positive = 4
    """Likeliest tokens at each answer position that oar-gf goes through."""
    mediator_count: Annotated[int, Field(ge=0)] | Literal["all"] = 8
    """Later tokens that oar-d recomputes; all of them make it exact OAR-P."""
    mediators: Literal["attention", "next"] = "attention"
    span: Positive = 8
    """Neighbouring tokens that oar-p-span replaces together."""
    exact_share: Rate = 0.25
    """Share of the tokens that oar-p-sample and oar-p-preselect score exactly."""
    q: Share = 0.4
    beta: NonNegative = 2.0
    floor: Share = 0.1
    scope: Literal["reasoning", "response"] = "reasoning"
    preserve_mass: bool = True
    released_quirks: bool = False
    control_of: Importance = "oar-p"
    """Whose weights the controls `shuffled` and `inverted` rearrange."""
    memory_mib: Positive = 256
    """MiB that a pass of credit may take over the model's own; changes speed, no importance."""
    save_weights: bool = False
    """Write every response's importances and weights to credit.jsonl; changes no number."""


class EvaluationSettings(Section):
    """The held-out evaluation of each checkpoint."""

    task: str = "oar_arithmetic"
    problems: Positive = 400
    samples: Positive = 4
    temperature: NonNegative = 1.0
    top_p: Rate = 1.0
    batch_size: Positive = 256
    max_new_tokens: Positive | None = None
    """Instead of the task's own limit."""

    @model_validator(mode="after")
    def _samples_differ(self) -> EvaluationSettings:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("several samples at temperature 0 would be equal; use samples: 1")
        return self


class ReproduceSettings(Section):
    """What `oar-bench reproduce` trains."""

    methods: Annotated[list[Method], Field(min_length=1)] = ["grpo", "oar-p", "oar-g", "shuffled"]
    seeds: Positive = 3


class Recipe(Section):
    """A whole recipe; see baselines/recipes/tiny.yaml for one with comments."""

    name: str
    family: Literal["arithmetic", "digits", "sum"] = "arithmetic"
    """Which built-in problems are trained on, where `data` names no others."""
    data: DataSettings | None = None
    data_dir: str | None = None
    """Folder of problem sets, DIR/gsm8k/train.jsonl, instead of OAR_BENCH_DATA_DIR or the hub."""
    model: ModelSettings = ModelSettings()
    warmstart: WarmStartSettings | None = None
    train: TrainSettings = TrainSettings()
    rollout: RolloutSettings = RolloutSettings()
    credit: CreditSettings = CreditSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    reproduce: ReproduceSettings = ReproduceSettings()

    @model_validator(mode="after")
    def _data_need_a_model(self) -> Recipe:
        if self.data is not None and self.model.path is None:
            raise ValueError(
                "data: a model from scratch knows the words of the built-in problems only; "
                "name a checkpoint by model.path"
            )
        return self

    def of_seed(self, seed: int) -> Recipe:
        """The recipe whose warm start is the one that a training seed begins from."""
        start = self.warmstart
        if start is None or not start.per_seed:
            return self
        own = start.model_copy(update={"seed": start.seed + seed})
        return self.model_copy(update={"warmstart": own})

    def settings(self) -> dict[str, Any]:
        """The recipe as plain JSON-ready values, but for where the data folder lies."""
        return self.model_dump(mode="json", exclude={"data_dir"})
