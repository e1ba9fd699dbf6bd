"""Effects that the fit has not seen: the further entries of a site whose plate is larger with new arguments."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key
from numpyro import distributions as dist

from laplacebook.base.errors import UnsupportedModel
from laplacebook.model.distributions import unwrapped

_REMEDY = (
    "put what is drawn anew in a numpyro.plate along which its entries are independent, or fit the "
    "model with the new groups in it, their outcomes masked."
)


def known(
    values: dict[str, Array], to_come: Mapping[str, Array] = MappingProxyType({})
) -> Callable[[dict], Array | None]:
    """Of a site of a trace its value; of an outcome to come what is given, or NaN, or of a discrete one 0."""

    def value(site: dict) -> Array | None:
        name = site["name"]
        if site["type"] != "sample" or site["is_observed"] or name in values:
            return values.get(name)
        if name in to_come:
            return to_come[name]
        nothing = 0 if site["fn"].support.is_discrete else jnp.nan
        return jnp.full(site["fn"].shape(), nothing)

    return value


class NewEntries:
    """The latent sites of a run of a model with new arguments, longer where their plates are.

    The first entries are those of the fit; the further ones a draw from the site's own distribution, given
    the sites before it.

    Attributes:
        values: of the latent sites in the fit.
        key: of the draws.
        drawn: the sites with new entries, whole; filled as the model runs.
    """

    def __init__(self, values: dict[str, Array], key: Key[Array, ""]) -> None:
        self.values, self.key = values, key
        self.drawn: dict[str, Array] = {}

    def value_of(self, site: dict) -> Array | None:
        """As :func:`known`, with new entries.

        Raises:
            UnsupportedModel: the site is longer, and not because of a plate, or has no prior to draw from.
        """
        name = site["name"]
        if name not in self.values:
            return known(self.values)(site)
        fn = site["fn"]
        old, new = jnp.shape(self.values[name]), fn.shape()
        # Within a scan a site is one of its steps; what is shorter is refused with all other shapes.
        if len(old) != len(new) or not any(a < b for a, b in zip(old, new, strict=True)):
            return self.values[name]
        if not _is_in_larger_plates(site, old, new):
            raise UnsupportedModel(
                f"The latent site '{name}' has shape {old} in the fit, and {new} with the new arguments: "
                f"its new entries are no independent draws of {type(unwrapped(fn)).__name__}, for they are "
                "not those of a plate.",
                remedy=_REMEDY,
            )
        try:
            drawn = fn.sample(jax.random.fold_in(self.key, list(self.values).index(name)))
        except NotImplementedError as error:
            raise UnsupportedModel(
                f"The latent site '{name}' has new entries, and {type(unwrapped(fn)).__name__}, its "
                "prior, has no draws.",
                remedy="give it a proper prior.",
            ) from error
        first = tuple(slice(0, size) for size in old)
        self.drawn[name] = jnp.asarray(drawn).at[first].set(self.values[name])
        return self.drawn[name]

    def refuse_factors(self, trace: dict[str, Any]) -> None:
        """Refuse new entries of a model with factors, which may say more of them than their prior.

        Raises:
            UnsupportedModel: there are both.
        """
        factors = [
            name
            for name, site in trace.items()
            if site["type"] == "sample" and isinstance(unwrapped(site["fn"]), dist.Unit)
        ]
        if self.drawn and factors:
            raise UnsupportedModel(
                f"The latent sites {', '.join(self.drawn)} have new entries, and the numpyro.factor "
                f"'{factors[0]}' may depend on them: then their prior alone is not their law.",
                remedy=_REMEDY,
            )


def _is_in_larger_plates(site: dict, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    batch = len(site["fn"].batch_shape)
    plates = {frame.dim for frame in site["cond_indep_stack"]}
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    return all(i - batch in plates and i < batch and old[i] < new[i] for i in changed)
