"""A structured precision is never made a matrix, but where one is asked for."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.jaxprs import array_sizes
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings, precision_bytes
from laplacebook.gaussian.memory import available_memory
from laplacebook.model.density import ModelDensity
from laplacebook.search import search

KEY = jax.random.key(0)
LARGE = 100_000
STRUCTURES_AT_SCALE = {
    "diagonal": (lb.DiagonalPrecision, [(LARGE,)]),
    "kronecker": (
        lambda *of: lb.KroneckerPrecision.of((lb.KroneckerBlock(*of[:3]), of[3])),
        [(249, 249), (400, 400), (), (400, 400)],
    ),
    "low rank": (lb.LowRankPrecision.of, [(LARGE,), (LARGE, 5), (5,)]),
}
METHODS = {
    "matvec": lambda a, v: a.matvec(v),
    "solve": lambda a, v: a.solve(v),
    "log_determinant": lambda a, v: a.log_determinant(),
    "sample": lambda a, v: a.sample(KEY, (2,)),
    "whitened": lambda a, v: a.whitened(v),
    "half_solve": lambda a, v: a.half_solve(v),
    "diagonal_of_inverse": lambda a, v: a.diagonal_of_inverse(),
    "covariance_of": lambda a, v: a.covariance_of(jnp.stack([v, v])),
}


def largest(program, shapes):
    abstract = [jax.ShapeDtypeStruct(shape, float) for shape in [*shapes, (LARGE,)]]
    return max(array_sizes(jax.make_jaxpr(program)(*abstract).jaxpr))


@pytest.mark.parametrize(("of", "shapes"), STRUCTURES_AT_SCALE.values(), ids=STRUCTURES_AT_SCALE)
def test_no_matrix_is_formed(of, shapes):
    def gradient(*given):
        return jax.grad(lambda parts: of(*parts).log_determinant())(given[:-1])

    assert largest(gradient, shapes) <= 10 * LARGE
    for method in METHODS.values():
        assert largest(lambda *given, m=method: m(of(*given[:-1]), given[-1]), shapes) <= 10 * LARGE


DENSE = {"inverse": lb.DiagonalPrecision.inverse, "matrix": lb.DiagonalPrecision.matrix.fget}


@pytest.mark.parametrize("method", DENSE.values(), ids=DENSE)
def test_a_matrix_is_formed_where_it_fits(monkeypatch, method):
    monkeypatch.setattr("laplacebook.gaussian.memory.available_memory", lambda: 3 * 8 * LARGE**2)
    assert largest(lambda d, _: method(lb.DiagonalPrecision(d)), [(LARGE,)]) >= LARGE**2
    monkeypatch.setattr("laplacebook.gaussian.memory.available_memory", lambda: 8 * LARGE**2)
    with pytest.raises(lb.LaplaceError, match=r"(?s)100,000 coordinates.*149 GiB.*74\.51 GiB"):
        method(lb.DiagonalPrecision(jnp.ones(LARGE)))


def test_memory_is_known_without_a_count_of_free_pages(monkeypatch):
    """As on macOS."""
    names = {name: i for name, i in os.sysconf_names.items() if name != "SC_AVPHYS_PAGES"}
    monkeypatch.setattr(os, "sysconf_names", names)
    if jax.default_backend() == "cpu":
        assert available_memory() > 0


def effects(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]))
    numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y)


@pytest.mark.parametrize("settings", [DENSE_HESSIAN, Settings("gauss_newton", "dense")])
def test_what_a_fit_needs_is_what_its_program_takes(settings):
    density = ModelDensity.of(effects, (np.ones(400),))
    program = search.compiled_search.lower(density, None, 1e-8, settings=settings).compile()
    taken = program.memory_analysis()
    taken = taken.temp_size_in_bytes + taken.output_size_in_bytes
    assert taken <= precision_bytes(density.sites, settings, float) <= 1.5 * taken


def test_running_out_of_memory_is_told_like_any_other_limit(monkeypatch):
    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 26 bytes.")

    monkeypatch.setattr(search, "_search", exhausted)
    with pytest.raises(lb.LaplaceError, match=r"(?s)20 coordinates needs.*allocating 26.*diagonal"):
        lb.laplace(effects, np.ones(20))


def test_twenty_thousand_coordinates_are_refused_before_they_are_tried(monkeypatch):
    monkeypatch.setattr("laplacebook.curvature.settings.available_memory", lambda: 24 * 2**30)
    with pytest.raises(lb.LaplaceError, match=r"(?s)20,000 coordinates needs 3.*GiB.*diagonal"):
        lb.laplace(effects, np.ones(20_000))
