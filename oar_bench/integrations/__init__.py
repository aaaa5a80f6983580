"""Token credit in other people's trainers, which keep their own loss (docs/integrations.md).

    tensors.py   prompts and responses as (B, P) and (B, T) tensors -> weights (B, T)
    trl.py       OARGRPOTrainer, TRL's GRPOTrainer with token weights (extra `[trl]`)
    rows.py      the rows of a file of responses, made sound
    responses.py such a file's responses as tokens
    saved.py     a file of responses -> a file of weights

A weight multiplies its token's advantage and nothing else: w >= 0, so w min(rho A, clip(rho) A) is
min(rho w A, clip(rho) w A), and the other trainer's loss stays as it is.
"""
