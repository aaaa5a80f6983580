"""Token-level credit: which tokens of a response decided its answer, and the weights from that.

`credit` takes tensors and returns tensors. Throughout, B is the number of responses and S the
padded length of prompt and response together; every mask and weight is (B, S) and belongs to the
token at its own position, so that nothing depends on the side of the padding and no weight can
slip to a neighbour.

The way from a response to its weights:

    probe.py         where reasoning and answer lie            -> masks (B, S)
    perturbation.py  OAR-P: replace a token, watch the answer  -> importance (B, S)
    direct.py        OAR-D: recompute what carries it there    -> importance (B, S)
    gradient.py      OAR-G and kin: an input gradient instead  -> importance (B, S)
    approximate.py   OAR-P on a part of the tokens             -> importance (B, S)
    cheap.py         entropy, attention, position, random      -> importance (B, S)
    methods.py       every one of them by its name
    reshape.py       bi-level reshaping                        -> weights (B, S), mass kept
    controls.py      shuffled, inverted                        -> weights that must not help
    assign.py        all of it, by the method's name
"""
