"""What a model reads by a string, from its own package or from the environment may change between two calls."""

import importlib
import types

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

Y = np.array([1.0, 2.0, 4.0])
S = 1.0
settings = types.ModuleType("settings_of_a_reader")
MODULE = """
import numpyro, numpyro.distributions as dist

def model(y):
    {how}
    t = numpyro.sample("t", dist.Normal(0, {scale}))
    numpyro.sample("y", dist.Normal(t, 1).expand([3]).to_event(1), obs=y)
"""


def of(scale):
    def model(y):
        t = numpyro.sample("t", dist.Normal(0, scale()))
        numpyro.sample("y", dist.Normal(t, 1).expand([3]).to_event(1), obs=y)

    return model


def exact(scale):
    return Y.sum() / (3 + 1 / scale**2)


READERS = {
    "getattr": lambda: getattr(settings, "scale"),  # noqa: B009
    "vars": lambda: vars(settings)["scale"],
    "dict": lambda: settings.__dict__["scale"],
    "globals": lambda: globals()["S"],
    "environ": lambda: float(__import__("os").environ["SCALE_OF_A_READER"]),
}


@pytest.mark.parametrize("how", READERS)
def test_by_a_string(how, monkeypatch):
    model = of(READERS[how])
    for scale in (1.0, 3.0):
        monkeypatch.setattr(settings, "scale", scale, raising=False)
        monkeypatch.setitem(globals(), "S", scale)
        monkeypatch.setenv("SCALE_OF_A_READER", str(scale))
        assert lb.laplace(model, Y).mode["t"] == pytest.approx(exact(scale), rel=1e-4)


@pytest.mark.parametrize(
    ("package", "how", "scale"),
    [
        ("reader_of_one", "from .conf import scale", "scale"),
        ("reader_of_two", "from . import conf", "conf.scale"),
        ("reader_of_three", "from ..above import scale", "scale"),
        ("reader_of_four", "from reader_of_four.inner.conf import scale", "scale"),
    ],
)
def test_by_an_import_that_the_model_makes(package, how, scale, tmp_path, monkeypatch):
    inner = tmp_path / package / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner / "conf.py").write_text("scale = 1.0\n")
    (inner.parent / "above.py").write_text("scale = 1.0\n")
    (inner / "models.py").write_text(MODULE.format(how=how, scale=scale))
    monkeypatch.syspath_prepend(tmp_path)
    models = importlib.import_module(f"{package}.inner.models")
    assert lb.laplace(models.model, Y).mode["t"] == pytest.approx(exact(1.0), rel=1e-4)
    for name in ("inner.conf", "above"):
        importlib.import_module(f"{package}.{name}").scale = 3.0
    assert lb.laplace(models.model, Y).mode["t"] == pytest.approx(exact(3.0), rel=1e-4)


def test_what_a_model_does_not_come_to_import_may_fail(tmp_path, monkeypatch):
    (tmp_path / "broken_of_a_reader.py").write_text("raise RuntimeError('half written')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def model(y, plot=False):
        if plot:
            import broken_of_a_reader  # noqa: F401
            import nowhere_of_a_reader  # noqa: F401
        t = numpyro.sample("t", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(t, 1).expand([3]).to_event(1), obs=y)

    assert lb.laplace(model, Y).mode["t"] == pytest.approx(exact(1.0), rel=1e-4)
    with pytest.raises(RuntimeError, match="half written"):
        lb.laplace(model, Y, plot=True)
