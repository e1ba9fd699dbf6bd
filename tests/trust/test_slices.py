"""The density along principal axes: moments with a closed form, names, units, what is outside."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import polygamma

import laplacebook as lb
from laplacebook.plotting import STYLES
from laplacebook.trust.slices import principal_slices


def log_gamma(u, shape):
    """The logarithm of a Gamma variable, in each coordinate."""
    return jnp.sum(shape * u - jnp.exp(u))


@pytest.mark.parametrize("shape", [10.0, 50.0, 200.0])
def test_skewness_mean_and_spread_of_a_log_gamma(shape):
    (found,) = principal_slices(lb.laplace_of_density(log_gamma, 0.0, np.float64(shape)), 20)
    exact = stats.loggamma(shape)
    assert found.skewness == pytest.approx(
        polygamma(2, shape) / polygamma(1, shape) ** 1.5, rel=5e-3
    )
    assert found.standard_deviation == pytest.approx(exact.std() * np.sqrt(shape), rel=1e-4)
    assert found.mean == pytest.approx(np.sqrt(shape) * (exact.mean() - np.log(shape)), rel=1e-3)
    density = exact.pdf(np.log(shape) + found.t / np.sqrt(shape)) / np.sqrt(shape)
    np.testing.assert_allclose(found.density, density, atol=2e-4)


def correlated(u, scales):
    """A skewed function of (a + b) and a Gaussian one of (a - b), in any units."""
    a, b = u["a"] / scales[0], u["b"] / scales[1]
    return log_gamma(a + b, 5.0) - 20 * (a - b) ** 2


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-3, 1e5)])
def test_axes_are_principal_and_units_do_not_matter(scales):
    start = {"a": 0.5, "b": 0.5}
    start = {name: x * scale for (name, x), scale in zip(start.items(), scales, strict=True)}
    approx = lb.laplace_of_density(correlated, start, np.array(scales))
    long, short = principal_slices(approx, 20)
    assert (long.axis, short.axis) == ("a + b", "a - b")
    (alone,) = principal_slices(lb.laplace_of_density(log_gamma, 0.0, np.float64(5)), 20)
    np.testing.assert_allclose(long.density, alone.density, rtol=1e-5, atol=1e-8)
    assert short.skewness == pytest.approx(0, abs=1e-8)
    assert principal_slices(approx, 1)[0].axis == "a + b"


def test_a_slice_is_in_standard_deviations_along_the_line():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))

    def gaussian(x, precision):
        return -x @ precision @ x / 2

    approx = lb.laplace_of_density(gaussian, np.ones(6), root @ root.T)
    slices = principal_slices(approx, 20)
    for one in slices:
        np.testing.assert_allclose(one.density, stats.norm.pdf(one.t), atol=1e-7)
    assert len({one.axis for one in slices}) == 6
    assert any(one.axis.endswith(" ...") for one in slices)


def test_equal_axes_are_the_coordinates():
    slices = principal_slices(lb.laplace_of_density(log_gamma, np.zeros(3), 9.0), 20)
    assert sorted(one.axis for one in slices) == ["u[0]", "u[1]", "u[2]"]
    assert all(one.skewness < 0 for one in slices)


def test_outside_the_support_the_density_is_zero():
    def bounded():
        numpyro.sample("p", dist.Beta(3.0, 3.0))

    approx = lb.laplace(bounded, space="constrained")
    (found,) = principal_slices(approx, 20)
    sd = float(np.sqrt(approx.covariance[0, 0]))  # a quarter, to the last bit
    p = 0.5 + found.t * sd
    assert np.all(found.density[(p < 0) | (p > 1)] == 0)
    inside = stats.beta(3, 3).pdf(p) * sd
    np.testing.assert_allclose(found.density, inside, atol=1e-4)


def test_nan_on_an_axis_is_an_error():
    def broken(x):
        return jnp.where(x > 5, jnp.nan, -(x**2) / 2)

    with pytest.raises(lb.NonFinite, match=r"20 of 241 points on the\sprincipal axes"):
        principal_slices(lb.laplace_of_density(broken, 0.5), 20)


def pair(y):
    numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(b.sum(), 0.5), obs=y)


@pytest.fixture(scope="module")
def of_pair():
    return lb.diagnose(lb.laplace(pair, 1.0), jax.random.key(0), starts=1)


def test_the_plot_shows_slice_and_gaussian(of_pair):
    figure = of_pair.plot()
    assert len(figure.axes) == 3
    for axes, one in zip(figure.axes, of_pair.slices, strict=True):
        exact, gaussian = axes.lines
        np.testing.assert_array_equal(exact.get_data(), (one.t, one.density))
        np.testing.assert_allclose(gaussian.get_ydata(), stats.norm.pdf(one.t))
        assert exact.get_color() == STYLES["exact"]["color"]
        assert gaussian.get_linestyle() == "--"
        assert axes.get_title() == f"{one.axis}\nskewness {one.skewness:z.2f}"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["exact", "Laplace"]


def test_the_plot_of_a_site_shows_the_marginals_of_its_coordinates(of_pair):
    """Of a Gaussian they are its own, along the coordinates though the axes are their sum and their difference."""
    figure = of_pair.plot("b")
    assert [axes.get_title().split("\n")[0] for axes in figure.axes] == ["b[0]", "b[1]"]
    for axes in figure.axes:
        exact, gaussian = axes.lines
        t = gaussian.get_xdata()
        np.testing.assert_allclose(
            exact.get_ydata(), np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi), atol=2e-3
        )
    with pytest.raises(ValueError, match="not 'c'; there are 'a', 'b'"):
        of_pair.plot("c")


def test_of_many_coordinates_six_axes_are_drawn_and_no_marginal():
    wide = lb.laplace_of_density(lambda x: -(x @ x) / 2, np.full(65, 0.1))
    found = lb.diagnose(wide, jax.random.key(0), 500, starts=1)
    assert len(found.plot().axes) == 6
    with pytest.raises(ValueError, match=r"more than 64 coordinates.*plot\(\) without"):
        found.plot("x")
