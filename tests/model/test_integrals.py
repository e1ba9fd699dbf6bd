"""Values of sites are had without a search for what was marginalised; log densities are not."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from laplacebook.beyond.marginalize import MarginalModel, marginalize
from laplacebook.model.density import ModelDensity
from laplacebook.model.trace import integrals_are_wanted, with_integrals


def groups(y):
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


@pytest.fixture
def density(monkeypatch):
    """Of a marginal model whose integral cannot be had any more, once its sites are known."""
    known = ModelDensity.of(marginalize(groups, "z"), (np.array([2.0, -1.0]),))
    assert known.dimension == 1

    def refuse(*_):
        raise ArithmeticError

    monkeypatch.setattr(MarginalModel, "_integral", refuse)
    return known


def test_values_starts_and_bounds_need_no_integral(density):
    np.testing.assert_allclose(density.values(jnp.zeros(1))["tau"], 1)
    assert np.isfinite(density.start()).all()
    assert np.isinf(density.room(jnp.zeros(1))).all()


@pytest.mark.parametrize("of", [ModelDensity.log_joint, ModelDensity.loss, ModelDensity.valid])
def test_a_log_density_and_its_validity_need_it(density, of):
    with pytest.raises(ArithmeticError):
        of(density, jnp.zeros(1))


def test_they_are_wanted_again_after_an_error():
    with pytest.raises(ValueError, match="within"), with_integrals(False):
        raise ValueError("within")
    assert integrals_are_wanted()
