"""One request for one backend: what of its body changes, and what is told about it.

1. Canonical parameters go where the dialect has a field for them, or are converted to one that it has
   (steps <-> steps per block, width -> steps), or are dropped. Nothing is lost without being named.
2. Ordinary members follow (`ordinary`). A request that needs no change keeps its bytes.
3. `reject` turns a parameter that is dropped or out of range into a refusal. Rounding to whole blocks is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..body import Body, Path
from .draft import Draft, printable
from .ordinary import LENGTHS, translate_members, translate_messages
from .parameters import Parameters
from .placement import Shape, place
from .row import Dialect, Field

Fields = Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class Translation:
    """What to change, and what to tell. `set` and `remove` are for `Body.replace`."""

    set: Mapping[Path, Any] = field(default_factory=dict)
    remove: tuple[Path, ...] = ()
    translated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    refused: str | None = None  # one line: why nothing is sent
    append: bool = False  # the backend will stream snapshots, and the client is to get append deltas

    def apply(self, body: Body, also: Mapping[Path, Any] | None = None) -> bytes:
        """The body's bytes with this translation, and other changes, made."""
        return body.replace({**self.set, **(also or {})}, self.remove)


NOTHING = Translation()


def translate(
    parameters: Parameters, body: Body | None, api: str, dialect: Dialect, reject: bool = False
) -> Translation:
    """The request in the backend's words. `api`: chat, completions, fim, edit or another."""
    if not parameters and (body is None or dialect.open):
        return NOTHING
    if body is None:
        why = f"{', '.join(parameters.names)}: only a JSON body can carry it" if reject else None
        return Translation(dropped=parameters.names, refused=why)
    draft = Draft(body, remove=list(parameters.members), dropped=[f"{n} (another value)" for n in parameters.overruled])
    fields = _fields(dialect, api)
    append = _view(draft, parameters, fields, dialect)
    if parameters.values or dialect.even:  # an uneven division may also be said in the backend's own words
        _diffusion(draft, parameters, fields, dialect)
    translate_members(draft, dialect, api)
    translate_messages(draft, dialect.messages.get(api))
    for key, value in parameters.extra.items():
        draft.set[key,] = value
        draft.translated.append(f"extra.{printable(key)}")
    return Translation(
        set=draft.set,
        remove=tuple(draft.remove),
        translated=tuple(draft.translated),
        dropped=tuple(dict.fromkeys(draft.dropped)),
        refused=_refusal(dialect, draft.faults) if reject and draft.faults else None,
        append=append,
    )


def _refusal(dialect: Dialect, faults: list[str]) -> str:
    return (
        f"the backend's dialect, {dialect.name}, cannot carry this: {'; '.join(faults)}. "
        'Leave it out, or let it be dropped: no x-manometer-strict, and unsupported = "drop"'
    )


def _fields(dialect: Dialect, api: str) -> Fields:
    """The canonical parameters' fields on this API, each in the API's own range where it has one."""
    standard = dialect.standard.get(api, {})
    return {name: standard.get(row.spelled, row) for name, row in dialect.fields.items() if api in row.apis}


def _counts(draft: Draft, parameters: Parameters, fields: Fields, name: str) -> bool:
    """A route's default gives way to what the client says in the backend's own words."""
    return not (name in parameters.defaults and name in fields and draft.said(fields[name].path) is not None)


def _view(draft: Draft, parameters: Parameters, fields: Fields, dialect: Dialect) -> bool:
    """Asks for snapshots where a view wants them; whether they are to be turned into append deltas."""
    view, row = parameters.values.get("view"), fields.get("view")
    if view is None or not _counts(draft, parameters, fields, "view"):
        return False
    if row and draft.body.get("stream") is True:
        draft.put(row, True, f"view={view}")
        return bool(view == "append")
    if view == "snapshot":  # without snapshots every stream is append anyway
        draft.dropped.append("view")
        draft.faults.append("only a stream has a view" if row else f"{dialect.name} streams no snapshots")
    return False


def _diffusion(draft: Draft, parameters: Parameters, fields: Fields, dialect: Dialect) -> None:
    """Steps, width and the like."""
    given = {name: value for name, value in parameters.values.items() if name != "view"}
    wanted = {name: value for name, value in given.items() if _counts(draft, parameters, fields, name)}
    draft.faults += (_out_of_range(fields[name], value) for name, value in wanted.items() if name in fields)
    draft.faults[:] = filter(None, draft.faults)
    placed, homeless = place(wanted, fields, _shape(draft, wanted, fields, dialect), dialect)
    for name, (value, source) in placed.items():
        draft.put(fields[name], value, source or f"{name}={value}", own=not source)
    if "length" in placed:
        _one_length(draft, fields["length"].path, placed["length"].source)
    for name in homeless:
        draft.dropped.append(name)
        draft.faults.append(f"there is no field for {name}")


def _out_of_range(row: Field, value: Any) -> str:
    if row.kind not in ("int", "number") or row.hold(value) == value:
        return ""
    return f"{row.spelled} cannot be {value:g}" + (f", {row.most:g} at most" if row.most and value > row.most else "")


def _shape(draft: Draft, wanted: Mapping[str, Any], fields: Fields, dialect: Dialect) -> Shape:
    """The answer's size as the backend will see it, from the first that says it.

    That is the parameter if it has a field, then the backend's own word, OpenAI's, and the backend's default.
    """
    said: list[tuple[str, Any]] = []
    if row := fields.get("length"):
        said += [("length", wanted.get("length")), (row.spelled, draft.said(row.path))]
    said += [(name, draft.body.get(name)) for name in LENGTHS]
    source, length = next((pair for pair in said if _whole(pair[1])), ("default", dialect.length))
    block = dialect.block
    if row := fields.get("block"):
        native = draft.said(row.path)
        block = wanted.get("block") or (native if _whole(native) else block)
    return Shape(length, block, source)


def _one_length(draft: Draft, path: tuple[str, ...], source: str) -> None:
    """The length that was set is the only one that the backend sees."""
    for name in LENGTHS:
        if name in draft.body and (name,) != path:
            if source.startswith(f"{name}="):  # it is what was set, rounded
                draft.remove.append(name)
            else:
                draft.leave_out(name)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
