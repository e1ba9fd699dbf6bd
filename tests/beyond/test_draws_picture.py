"""Pictures of sites that are known by draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb

KEY = jax.random.key(0)
Y = jnp.array([3.0, 0.0, 2.0, 5.0, 1.0, 2.0, 4.0])


def counts(y):
    rate = numpyro.sample("rate", dist.Gamma(20.0, 10.0).expand([2, 1]).to_event(2))
    numpyro.sample("steps", dist.Normal(jnp.arange(7.0), 1).to_event(1))
    numpyro.sample("all", dist.Normal(0, 1).expand([3, 3]).to_event(2))
    numpyro.sample("y", dist.Poisson(rate.sum() + 0 * y).to_event(1), obs=y)


@pytest.fixture(scope="module")
def drawn():
    return lb.skewed(lb.laplace(counts, Y))


def test_of_a_few_numbers_each_has_a_histogram(drawn):
    """Its area is one, its mean that of the draws; the normal beside it has the same moments."""
    figure = drawn.plot("rate")
    assert [axes.get_title() for axes in figure.axes] == ["rate[0, 0]", "rate[1, 0]"]
    mean, sd = (np.ravel(x["rate"]) for x in (drawn.mean, drawn.standard_deviation))
    for i, axes in enumerate(figure.axes):
        (bars,), (line,) = axes.patches, axes.lines
        heights, edges, _ = bars.get_data()
        masses = heights * np.diff(edges)
        assert masses.sum() == pytest.approx(1)
        middle = masses @ (edges[1:] + edges[:-1]) / 2
        assert middle == pytest.approx(mean[i], abs=0.03 * sd[i])
        np.testing.assert_allclose(
            line.get_ydata(), stats.norm(mean[i], sd[i]).pdf(line.get_xdata()), rtol=1e-6
        )
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told[0].endswith(" draws") and told[1] == "normal, of the same mean and sd"


def test_a_longer_vector_has_a_band(drawn):
    (axes,) = drawn.plot("steps", 0.5).axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), np.arange(7.0), atol=0.1)
    assert axes.get_xlabel() == "index"
    told = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert told == ["25 % to 75 %", "mean"]


@pytest.mark.parametrize("site", ["all", "nothing"])
def test_what_has_no_picture_is_refused(drawn, site):
    with pytest.raises(ValueError, match=rf"not '{site}'; there are 'rate' of shape \(2, 1\)"):
        drawn.plot(site)
    with pytest.raises(ValueError, match="probability must be between"):
        drawn.plot("rate", 1.5)
