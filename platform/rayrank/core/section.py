"""The base of every group of settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def unused(self) -> set[str]:
        """Return the settings that change no result as the others are set; keys of artifacts leave them out."""
        return set()
