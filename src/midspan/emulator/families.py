"""One model behind one API, as strict as it is; what is known of it stands in `capabilities`."""

from functools import lru_cache

from msgspec.structs import asdict

from midspan.providers.gemini.capabilities import Api, Capabilities, Demands, capabilities_of, demands_of


class Family(Demands, frozen=True, kw_only=True):
    """A model as its server sees it."""

    name: str
    capabilities: Capabilities


@lru_cache(maxsize=256)
def family_of(model: str, api: Api = Api.DEVELOPER, version: str = "v1beta") -> Family:
    """What is known of the model with this name; one that we do not know is taken for the newest."""
    name = model.rsplit("/", 1)[-1].lower()
    return Family(name=name, capabilities=capabilities_of(name, api, version), **asdict(demands_of(name, api, version)))
