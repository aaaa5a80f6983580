"""What is claimed, and the test that decides each claim: baselines/claims.yaml, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from oar_bench.config import Section, read_mapping, validated
from oar_bench.resources import shipped

Share = Annotated[float, Field(gt=0, lt=1)]
Factor = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(min_length=1)]


class Part(Section):
    """What every test has: a word that tells it from others of its claim."""

    name: str = ""


class Superiority(Part):
    """`a` scores higher than `b`.

    Supported: a - b > 0 is shown. Contradicted: a - b < margin is shown, so that no gain as large
    as the margin is left. Where both are shown the gain is real, if small: supported.
    """

    test: Literal["superiority"]
    a: Name
    b: Name
    margin: Share
    control: bool = False
    """`b` must be the control made of `a`'s own weights (`credit.control_of`)."""


class NonInferiority(Part):
    """`a` scores at least as high as `b`, within a margin.

    Supported: a - b > -margin is shown. Contradicted: a - b < 0 is shown. Where both are shown the
    loss is real, if small: contradicted.
    """

    test: Literal["non-inferiority"]
    a: Name
    b: Name
    margin: Share


class CostRatio(Part):
    """A phase of a method costs at most `at_most` times what that of another does.

    Seconds: supported or contradicted where the ratio is shown to be below or above, paired within
    repeats (or training seeds). Operations are counted, and so exact.
    """

    test: Literal["cost"]
    of: Name
    over: Name
    phase: Name
    measure: Annotated[Literal["seconds", "operations"], Field(alias="in")]
    at_most: Factor
    lengths: Literal["every", "longest"] = "every"
    """Which of the response lengths measured must keep to it."""


class Agreement(Part):
    """A method's ranks correlate with exact OAR-P's by at least so much (Spearman's rho)."""

    test: Literal["agreement"]
    of: Name
    at_least: Share


class Mass(Part):
    """The mean weight of every logged step is 1 within a tolerance."""

    test: Literal["mass"]
    of: Annotated[tuple[Name, ...], Field(min_length=1)]
    tolerance: Share


Test = Annotated[
    Superiority | NonInferiority | CostRatio | Agreement | Mass, Field(discriminator="test")
]


class Claim(Section):
    """A claim: what it says, who says it, and its tests (each has a verdict of its own)."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,12}$")]
    says: Name
    source: Name
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _parts_are_told_apart(self) -> Claim:
        names = [test.name for test in self.tests]
        if len({*names}) < len(names):
            raise ValueError(f"the tests of {self.id} need a name each")
        return self


class Claims(Section):
    """All claims that are judged together.

    `alpha` bounds the chance of any wrong verdict: half of it for any false `supported`, half for
    any false `contradicted`.
    """

    alpha: Share = 0.05
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _ids_differ(self) -> Claims:
        ids = [claim.id for claim in self.claims]
        if len({*ids}) < len(ids):
            raise ValueError("two claims have one id")
        return self


def load_claims(path: Path | None = None) -> Claims:
    """The claims of a YAML file; of baselines/claims.yaml if none is given.

    Raises:
        InputError: no such file, not YAML, an unknown key or a value out of range.

    >>> [claim.id for claim in load_claims().claims]
    ['C1', 'C2', 'C3', 'C4', 'C5', 'C6', 'C7']
    """
    file = path or shipped("baselines") / "claims.yaml"
    return validated(Claims, read_mapping(file, "file of claims"), str(file))
