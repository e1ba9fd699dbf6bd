"""The latent sites of a NumPyro model as coordinates of R^D, or why the model has none."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import (
    Delta,
    Distribution,
    ImproperUniform,
    MaskedDistribution,
    TransformedDistribution,
    Unit,
    biject_to,
)
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.initialization import init_to_feasible

from laplacebook.base.errors import UnsupportedModel
from laplacebook.model.arguments import Call
from laplacebook.model.distributions import innermost, unwrapped, wrapped
from laplacebook.model.labels import Labels, marked
from laplacebook.model.misfit import refuse_crossed, refuse_crossed_factors
from laplacebook.model.repeatable import draws_numbers, numbers_in, require_repeats
from laplacebook.model.working_precision import InWorkingPrecision


@dataclass(frozen=True)
class Site:
    """A latent site: its name, its shape as coordinates of R^D, that of its value, and its prior.

    ``improper``: the prior is flat, ``numpyro.distributions.ImproperUniform`` or its image under a
    transform, or one that a mask hides. What an array masks is not known before the model runs, so any array counts.
    """

    name: str
    shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    improper: bool = False

    @property
    def size(self) -> int:
        """How many coordinates of R^D the site takes."""
        return prod(self.shape)

    def coordinate_names(self, most: int | None = None) -> list[str]:
        """``["w[0, 0]", "w[0, 1]", ...]``, or ``["theta"]`` for a scalar; all, or so many of the first."""
        places = islice(np.ndindex(self.shape), most)
        return [f"{self.name}{list(index) if index else ''}" for index in places]


def find_sites(call: Call, space: str) -> tuple[tuple[Site, ...], frozenset[str], Labels]:
    """Run a model abstractly, look at its sites, and run it again to see that it repeats itself.

    Args:
        call: a NumPyro model and its arguments.
        space: ``"unconstrained"`` or ``"constrained"``.

    Returns:
        The latent sites in the order of the model, the names of all its sites, and the labels among
        its data.

    Raises:
        UnsupportedModel: the model has no density on R^D.
    """
    latent: list[Site] = []
    names: set[str] = set()
    factors: list[str] = []

    def run_model(*arrays: Any) -> list[Any]:
        now = call.with_arrays(arrays)
        args, kwargs = now.arguments
        seeded = handlers.seed(_Watch(now.function), jax.random.key(0))
        started = handlers.substitute(seeded, substitute_fn=_feasible)
        with validation_enabled(False), InWorkingPrecision():
            trace = handlers.trace(started).get_trace(*args, **kwargs)
        latent[:] = _latent_sites(trace, space)
        _refuse_misshapen(trace)
        names.update(trace)
        samples = [site for site in trace.values() if site["type"] == "sample"]
        free = _factors(trace)
        factors[:] = free
        return [*free.values(), *numbers_in([(s["fn"], s["value"], s["scale"]) for s in samples])]

    try:
        program = require_repeats(run_model, *call.arrays)
    except _NOT_CONCRETE as error:
        raise _needs_values(error) from error
    except AssertionError as error:
        if "size of plate" in str(error):
            raise UnsupportedModel(
                "A plate of the model has no element.",
                causes=["data without rows, or without groups"],
                remedy="check the shapes of the arguments.",
            ) from error
        if "unique names" not in str(error):
            raise
        raise UnsupportedModel(
            f"The model has two sites of one name: {error}",
            causes=[
                "a Python loop that samples the same name again",
                "a submodel that is run twice",
            ],
            remedy='give each its own name, f"z{i}", or put a submodel into numpyro.handlers.scope.',
        ) from error
    except ValueError as error:
        if not str(error).startswith("Incompatible shapes for broadcasting"):
            raise
        raise _shapes_differ(error) from error
    if not sum(site.size for site in latent):
        raise UnsupportedModel(
            f"The latent sites have no number in them: {', '.join(s.name for s in latent)}.",
            causes=["data without columns or groups, so that there is nothing to infer"],
            remedy="check the shapes of the arguments.",
        )
    refuse_crossed_factors(program, factors)
    return tuple(latent), frozenset(names), Labels.of(program)


_NOT_CONCRETE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def _needs_values(error: Exception) -> UnsupportedModel:
    of_numpy = isinstance(error, jax.errors.TracerArrayConversionError)
    return UnsupportedModel(
        f"The model asks for the numbers in an array, which JAX does not have while it compiles the "
        f"model ({type(error).__name__}).",
        causes=[
            *(
                ["booleans as an index: as labels of two groups they are integers, g.astype(int)"]
                * isinstance(error, jax.errors.NonConcreteBooleanIndexError)
            ),
            *(["a function of NumPy or SciPy within the model, such as np.isnan(y)"] * of_numpy),
            "a Python branch or loop on data or on a latent site (if y.sum() > 0:)",
            "an index or a size taken from an array (y[y > 0], jnp.arange(n) with an array n)",
            "float() or int() of an array",
        ],
        remedy=("within the model write jnp for np, as in jnp.isnan(y); " if of_numpy else "")
        + "use jnp.where or jax.lax.cond; or pass what the branch depends on as a Python value, "
        "laplace(functools.partial(model, positive=True), ...), since arrays are data.",
    )


def _shapes_differ(error: Exception) -> UnsupportedModel:
    return UnsupportedModel(
        f"Shapes within the model do not fit together. {error}",
        causes=[
            "a plate of another size than the data",
            "arguments with different numbers of rows",
        ],
        remedy="compare the shapes of the arguments with the sizes of the plates; "
        "numpyro.util.format_shapes shows those of the sites.",
    )


def _feasible(message: dict) -> Array | None:
    if message["type"] != "sample" or message["is_observed"] or message["value"] is not None:
        return None  # within a scan, what a handler inside has given a value comes here, too
    if message["fn"].support.is_discrete:
        raise _discrete(message)
    if isinstance(unwrapped(message["fn"]), Delta):
        raise _known(message)
    with _refused(message):
        return marked(init_to_feasible(message))


@contextmanager
def _refused(site: dict) -> Iterator[None]:
    """The errors of a support that NumPyro has no bijection for (spheres, say), as ours."""
    try:
        yield
    except (NotImplementedError, ValueError) as error:
        raise UnsupportedModel(
            f"NumPyro has no bijection from R^D to the support of '{site['name']}', "
            f"{site['fn'].support}. {error}",
            remedy="write the site as a transform of sites that have one (numpyro.infer.reparam).",
        ) from error


_OF_MODULE = (
    ". Of random_flax_module and random_nnx_module, whose weights have priors of their own, any value does: "
    "values = {n: s['value'] for n, s in handlers.trace(handlers.seed(model, 0)).get_trace(...).items() "
    "if s['type'] in ('param', 'mutable')}, and handlers.substitute(model, values); or use lb.network"
)


class _Watch(numpyro.primitives.Messenger):
    """Refuses, between the model and all other handlers, what would not show in the trace."""

    def process_message(self, message: dict) -> None:
        if message["type"] == "prng_key":
            raise draws_numbers("(numpyro.prng_key)")
        if message["type"] in ("param", "mutable") and message["value"] is None:
            raise UnsupportedModel(
                f"'{message['name']}' is a numpyro.{message['type']}: it has no prior.",
                remedy="make it a latent site (numpyro.sample), or give its value with "
                f"numpyro.handlers.substitute{_OF_MODULE if message['name'].endswith('$params') else ''}.",
            )
        if _is_substituted(message):
            raise UnsupportedModel(
                f"The latent site '{message['name']}' was given a value and yet is not observed.",
                causes=["numpyro.handlers.substitute or replay around the model"],
                remedy="use numpyro.handlers.condition to fix it, or start= to begin the search there.",
            )


def _is_substituted(message: dict) -> bool:
    latent = message["type"] == "sample" and not message["is_observed"]
    return latent and message["value"] is not None and not message.get("_control_flow_done")


def _latent_sites(trace: dict, space: str) -> list[Site]:
    for site in trace.values():
        if (
            site["type"] == "plate"
            and site["args"][1] is not None
            and site["args"][1] < site["args"][0]
        ):
            raise UnsupportedModel(
                f"The plate '{site['name']}' takes {site['args'][1]} of its {site['args'][0]} elements at random.",
                causes=["subsample_size= was meant for stochastic variational inference"],
                remedy="leave subsample_size out: the Laplace approximation needs all data at once.",
            )
    latent = [s for s in trace.values() if s["type"] == "sample" and not s["is_observed"]]
    if not latent:
        raise UnsupportedModel(
            "The model has no latent site: there is nothing to approximate.",
            causes=["every sample site has obs=", "the function is not a NumPyro model"],
            remedy="leave out obs= for the quantities to be inferred.",
        )
    for site in latent:
        if not isinstance(site["name"], str):
            raise UnsupportedModel(
                f"The latent site {site['name']!r} has a name that is no string.",
                remedy=f"call it {str(site['name'])!r}.",
            )
    return [
        Site(
            site["name"],
            _coordinates_shape(site, space),
            jnp.shape(site["value"]),
            _is_improper(site["fn"]),
        )
        for site in latent
    ]


def _refuse_misshapen(trace: dict) -> None:
    for site in trace.values():
        # The steps of a scan are an axis that no plate declares.
        if site["type"] != "sample" or site.get("_control_flow_done"):
            continue
        if site["is_observed"]:
            refuse_crossed(site)
        else:
            _refuse_wider_scale(site)


def _refuse_wider_scale(site: dict) -> None:
    shape, own = (
        jnp.shape(site["scale"]) if site["scale"] is not None else (),
        site["fn"].batch_shape,
    )
    whole = jnp.broadcast_shapes(shape, own)
    times = prod(whole) // max(prod(own), 1)
    if times <= 1:
        return
    raise UnsupportedModel(
        f"The prior of '{site['name']}', of batch shape {own}, is scaled by an array of shape {shape}: it would count "
        f"{times} times.",
        causes=[
            "numpyro.handlers.scale, with a weight for each row, around what samples more than the outcomes"
        ],
        remedy="let the handler be around the observed site alone; a model of lb.network takes weights=.",
    )


def _factors(trace: dict) -> dict[str, Array]:
    """What each factor that no plate repeats adds to the log joint."""
    free = (s for s in trace.values() if s["type"] == "sample" and not s["cond_indep_stack"])
    kinds = {s["name"]: unwrapped(s["fn"]) for s in free}
    return {
        name: jnp.asarray(kind.log_factor) for name, kind in kinds.items() if isinstance(kind, Unit)
    }


def _is_improper(fn: Distribution) -> bool:
    *wrappers, inner = wrapped(fn)
    if any(isinstance(layer, MaskedDistribution) and layer._mask is not True for layer in wrappers):
        return True
    if isinstance(inner, TransformedDistribution):
        return _is_improper(inner.base_dist)
    return type(inner) is ImproperUniform


def _discrete(site: dict) -> UnsupportedModel:
    return UnsupportedModel(
        f"The latent site '{site['name']}' is discrete ({type(site['fn']).__name__}): it has no curvature.",
        causes=[
            "a mixture's labels, a change point or a count was left as a latent site",
            "it is data: obs= was forgotten, or what was passed to it is None",
        ],
        remedy="sum it out (numpyro.distributions.MixtureSameFamily does so for mixtures), or observe it.",
    )


def _known(site: dict) -> UnsupportedModel:
    name = site["name"]
    return UnsupportedModel(
        f"The latent site '{name}' is a Delta: its value is known, and it has no density to approximate.",
        causes=["a parameter that is held fixed"],
        remedy=f"write numpyro.deterministic('{name}', value); a log_density of it as a numpyro.factor.",
    )


def _coordinates_shape(site: dict, space: str) -> tuple[int, ...]:
    name, support = site["name"], site["fn"].support
    shape = jnp.shape(site["value"])
    if space == "constrained":
        if innermost(support).event_dim:
            raise UnsupportedModel(
                f"The support of '{name}', {support}, is not a product of intervals, so its coordinates are not free.",
                remedy='use space="unconstrained".',
            )
        return shape
    with _refused(site):
        return tuple(biject_to(support).inverse_shape(shape))
