"""The settings as options of the command, made from their model: name, type and help are written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from schemas.settings import Settings


def _option(name: str) -> tuple[Any, Any]:
    info = Settings.model_fields[name]
    default = "none" if info.default is None else str(info.default).lower()
    return _given_as(info.annotation) | None, Field(
        default=None, description=f"{info.description} (default: {default})"
    )


def _given_as(annotation: Any) -> Any:
    """Return the type that an option is parsed to. Limits are left to the model, which words what is wrong."""
    if annotation is bool or get_origin(annotation) is Literal:
        return annotation
    members = (annotation, *get_args(annotation))
    for number in (int, float):
        if any(member is number or number in get_args(member)[:1] for member in members):
            return number
    return str


if TYPE_CHECKING:

    class SettingOptions(BaseModel):
        """One optional field a setting; null: not given."""
else:
    SettingOptions = create_model("SettingOptions", **{name: _option(name) for name in Settings.model_fields})
