"""Log-probabilities of sampled tokens, without a table of all logits.

Only response tokens have logits made, never those of the prompt or of padding; and these are made
in parts of at most `logits_mib` MiB. Where several parts are needed, each is made again in the
backward pass rather than kept, so that memory doesn't grow with response length x vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from oar_bench.credit.answer import position_ids

TABLES = 3
"""Float32 tables (tokens x vocabulary) alive at once: logits, their softmax, its gradient."""

_PLAIN: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


class TokenLogprobs(NamedTuple):
    """Both (B, S) float32, each at its own token, 0 outside the response."""

    logprobs: torch.Tensor
    entropy: torch.Tensor
    """In nats, without gradient; all 0 unless it was asked for."""


class LogprobModel(nn.Module):
    """A causal LM as a function from token ids to their log-probabilities.

    One module around model and vocabulary head, so that whoever wraps it (DDP, FSDP) sees one
    forward pass with all parameters inside.
    """

    def __init__(
        self, model: PreTrainedModel, temperature: float = 1.0, logits_mib: int = 256
    ) -> None:
        """Keep `model`; the distribution is softmax(logits / temperature)."""
        super().__init__()
        self.model, self.temperature, self.logits_mib = model, temperature, logits_mib
        self.plain_head = _head_is_plain(model)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        response_mask: torch.Tensor,
        entropy: bool = False,
    ) -> TokenLogprobs:
        """Log-probability of each response token given what precedes it.

        Args:
            input_ids, attention_mask: (B, S) int64; response_mask: (B, S) bool, never true in the
                first column.
            entropy: also give the entropy of the distribution that each token was drawn from.
        """
        rows, columns = torch.nonzero(response_mask, as_tuple=True)
        targets = input_ids[rows, columns]
        if self.plain_head:
            output: Any = self.model.base_model(
                input_ids=input_ids, attention_mask=attention_mask,
                position_ids=position_ids(attention_mask), use_cache=False,
            )  # fmt: skip
            states = output.last_hidden_state[rows, columns - 1]
            values, spreads = self._in_parts(states, targets, entropy)
        else:
            # The head does more than multiply (it caps or scales): only the model's own code
            # gives its logits, for whole columns at a time.
            kept = torch.nonzero(response_mask.any(0)).flatten()
            output = self.model(
                input_ids=input_ids, attention_mask=attention_mask,
                position_ids=position_ids(attention_mask), logits_to_keep=kept - 1,
                use_cache=False,
            )  # fmt: skip
            logits = output.logits[rows, torch.searchsorted(kept, columns)]
            values, spreads = self._of_logits(logits, targets, entropy)
        zeros = torch.zeros(input_ids.shape, device=input_ids.device)
        place = (rows, columns)
        return TokenLogprobs(zeros.index_put(place, values), zeros.index_put(place, spreads))

    def _in_parts(
        self, states: torch.Tensor, targets: torch.Tensor, entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (N,) of hidden states (N, H)."""
        head: Any = self.model.get_output_embeddings()
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        tokens = max(1, self.logits_mib * 2**20 // (4 * TABLES * vocabulary))

        def of_states(part: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self._of_logits(head(part), ids, entropy)

        if len(targets) <= tokens:
            return of_states(states, targets)
        pairs = zip(states.split(tokens), targets.split(tokens), strict=True)
        if torch.is_grad_enabled():
            parts = [checkpoint(of_states, *pair, use_reentrant=False) for pair in pairs]
        else:
            parts = [of_states(*pair) for pair in pairs]
        return torch.cat([v for v, _ in parts]), torch.cat([e for _, e in parts])

    def _of_logits(
        self, logits: torch.Tensor, targets: torch.Tensor, entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of logits (N, V), in float32."""
        table = logits.float() / self.temperature
        total = table.logsumexp(-1)
        values = table.gather(1, targets[:, None])[:, 0] - total
        if not entropy:
            return values, torch.zeros_like(total)
        with torch.no_grad():
            spreads = total - (torch.softmax(table, -1) * table).sum(-1)
        return values, spreads


def token_logprobs(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    response_mask: torch.Tensor,
    temperature: float = 1.0,
    logits_mib: int = 256,
) -> TokenLogprobs:
    """Log-probabilities and entropies of the response tokens; see `LogprobModel`."""
    scorer = LogprobModel(model, temperature, logits_mib)
    scored: TokenLogprobs = scorer(input_ids, attention_mask, response_mask, entropy=True)
    return scored


@torch.no_grad()
def _head_is_plain(model: PreTrainedModel) -> bool:
    """Whether a model's logits are its output embedding of its last hidden state, and no more.

    Tried on three tokens rather than told from the configuration: models that cap or scale their
    logits (Gemma 2, Cohere, Granite) each have another name for it.
    """
    if model not in _PLAIN:
        ids = torch.arange(3, device=model.device)[None]
        whole: Any = model(input_ids=ids, use_cache=False)
        hidden: Any = model.base_model(input_ids=ids, use_cache=False)
        head: Any = model.get_output_embeddings()
        made = head(hidden.last_hidden_state)
        # To the bit: a cap of 30 moves the small logits of an untrained model by rounding alone.
        _PLAIN[model] = torch.equal(made, whole.logits)
    return _PLAIN[model]
