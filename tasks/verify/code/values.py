"""Writes values of plain types as JSON that keeps tuples, sets and dictionaries apart."""

from typing import Any


def pack(value: Any) -> Any:
    """Return a JSON value for a value of plain types, or of numpy's.

    Raises:
        TypeError: of another type.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list):
        return [pack(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(one) for one in value]}
    if isinstance(value, set | frozenset):
        return {"set": [pack(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(key), pack(one)] for key, one in value.items()]}
    if hasattr(value, "tolist"):
        return pack(value.tolist())
    raise TypeError(f"{type(value).__name__} is no plain type")


def unpack(packed: Any) -> Any:
    """Return the value that was packed, with a subclass as its base.

    Raises:
        ValueError, TypeError: nothing that ``pack`` gives.
    """
    if isinstance(packed, list):
        return [unpack(one) for one in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "dict":
        return {unpack(key): unpack(one) for key, one in content}
    if kind not in ("tuple", "set"):
        raise ValueError(f"unknown kind {kind!r}")
    return (tuple if kind == "tuple" else set)(unpack(one) for one in content)
