"""Checked values from a YAML file: every mistake is one line that names its place and the mend."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from oar_bench.errors import InputError, nearest

Model = TypeVar("Model", bound=BaseModel)


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Args:
        path: the file.
        what: what to call it in errors, for example `recipe`.

    Raises:
        InputError: no such file, a folder, not YAML, or no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no such {what} file", str(path)) from error
    except IsADirectoryError as error:
        raise InputError("a YAML file is expected, not a folder", str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"not a YAML file ({line})", str(path)) from error
    if not isinstance(content, dict):
        raise InputError(f"a {what} is a mapping of keys to values", str(path))
    return content


def validated(
    model: type[Model],
    content: dict[str, Any],
    where: str,
    elsewhere: Callable[[str], str] = lambda place: "",
) -> Model:
    """The content as a `model`; `where` names its source in errors.

    `elsewhere` gives the mend for an unknown key by its place, if it is one of another tool's.

    Raises:
        InputError: an unknown key, a missing one, or a value out of range.

    >>> class Point(BaseModel, extra="forbid"):
    ...     x: int
    >>> validated(Point, {"x": 3}, "point.yaml").x
    3
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # a misspelt key is often missing under its right name too: name the one that is there
        errors = error.errors()
        first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
        # pydantic names the branch of a union after the field: no key of the file
        keys = _fields(model, first["loc"])
        place = ".".join(str(part) for part in keys)
        same = [e for e in errors if _fields(model, e["loc"]) == keys]
        if first["type"] == "extra_forbidden":
            known = known_keys(model, first["loc"][:-1])
            mend = nearest(str(first["loc"][-1]), known) if known else ""
            mend = elsewhere(place) or mend
            raise InputError(f"unknown key {place!r}", where, mend) from error
        said = " or ".join(dict.fromkeys(e["msg"][:1].lower() + e["msg"][1:] for e in same))
        said = said.replace(" or input should be", " or")
        if first["type"] == "missing":
            raise InputError(f"the key {place!r} is missing", where) from error
        if first["type"] == "value_error":  # our own words, about several keys at once
            said = str(first["ctx"]["error"])
            raise InputError(f"{place}: {said}" if place else said, where) from error
        raise InputError(f"{place}: {said}, not {first['input']!r}", where) from error


def _fields(model: type[BaseModel], place: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """An error's place without the branches of a union, which pydantic names after its field."""
    section = model
    for number, part in enumerate(place):
        if isinstance(part, int) or part not in section.model_fields:
            continue
        sections = _sections(section.model_fields[part].annotation)
        if not sections:  # a value, or a list of them: only numbers of items belong to it
            items = takewhile(lambda more: isinstance(more, int), place[number + 1 :])
            return (*place[: number + 1], *items)
        if len(sections) > 1:
            return place
        [section] = sections
    return place


def known_keys(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """Keys of the section at `place` of a model; none where sections are told apart by a tag."""
    section = model
    for part in place:
        if isinstance(part, int):
            continue
        field = section.model_fields.get(part)
        sections = _sections(field.annotation) if field else []
        if len(sections) != 1:
            return []
        [section] = sections
    return list(section.model_fields)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The models within an annotation, through lists, unions and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _sections(part)]
