"""Schema evolution: new fields inside of structs, lists and maps, and wider numbers.

A table with a newer schema still takes rows of the older one, so dispatchers with the old and the
new schema can run together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def fits(found: pa.DataType, ours: pa.DataType, *, widens: bool) -> bool:
    """Whether a column of type ``found`` accepts ``ours``, or can be changed so that it does.

    :param widens: whether int may become bigint, float double, and a decimal one of more digits
    """
    import pyarrow.types as t

    if t.is_struct(found) and t.is_struct(ours):
        both = {each.name for each in found} & {each.name for each in ours}
        return all(
            fits(found.field(name).type, ours.field(name).type, widens=widens) for name in both
        )
    if _is_list(found) and _is_list(ours):
        return fits(found.value_type, ours.value_type, widens=widens)
    if t.is_map(found) and t.is_map(ours):
        keys = fits(found.key_type, ours.key_type, widens=False)
        return keys and fits(found.item_type, ours.item_type, widens=widens)
    return _plain(found) == _plain(ours) or (
        widens and (_is_wider(found, ours) or _is_wider(ours, found))
    )


def adds(found: pa.DataType, ours: pa.DataType) -> bool:
    """Whether ``ours``, which fits, has a field that ``found`` lacks."""
    import pyarrow.types as t

    if t.is_struct(ours):
        names = {each.name for each in found}
        return any(
            each.name not in names or adds(found.field(each.name).type, each.type) for each in ours
        )
    if _is_list(ours):
        return adds(found.value_type, ours.value_type)
    return bool(t.is_map(ours)) and adds(found.item_type, ours.item_type)


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as t

    return bool(t.is_list(kind) or t.is_large_list(kind))


def _plain(kind: Any) -> str:
    """The name of a type, without Arrow's variants for large values."""
    return str(kind).removeprefix("large_")


def _is_wider(one: pa.DataType, other: pa.DataType) -> bool:
    import pyarrow.types as t

    if t.is_decimal(one) and t.is_decimal(other):
        return bool(one.scale == other.scale and one.precision > other.precision)
    return (_plain(other), _plain(one)) in (("int32", "int64"), ("float", "double"))
