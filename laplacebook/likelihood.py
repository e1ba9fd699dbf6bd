"""The likelihood of a model alone: its log joint without the prior."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.density import ModelDensity, Terms

__all__ = ["LikelihoodDensity"]


@jax.tree_util.register_pytree_node_class
class LikelihoodDensity(ModelDensity):
    """log p(D | theta) as a function of u: the prior and the log Jacobian are left out.

    In the constrained space it is minus infinity outside the support of the priors.
    """

    method = "Maximum likelihood fit"
    function = "log likelihood"
    without_prior = "left out"

    @classmethod
    def of(cls, density: ModelDensity) -> ModelDensity:
        """The likelihood of a log joint."""
        children, program = density.tree_flatten()
        return cls.tree_unflatten(program, children)

    @property
    def improper(self) -> tuple[str, ...]:
        """All latent sites: none has a prior."""
        return tuple(site.name for site in self.sites)

    def terms(self, u: Float[Array, " D"]) -> Terms:
        """Log likelihood, a log prior of zero within the support, and latent values at u."""
        terms = super().terms(u)
        outside = jnp.any(terms.room < 0)
        return terms._replace(log_prior=jnp.where(outside, -jnp.inf, 0).astype(u.dtype))
