"""The ascent to the largest evidence, on functions of which all is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.evidence.ascent import Objective, Peak, ascend, explain_no_maximum
from laplacebook.evidence.hyperparameters import Hyperparameters


@jax.tree_util.register_static
class Steep(Objective):
    """A slope of 23 nats, as far below the noise of 46 rows, up to a maximum at 12."""

    def __call__(self, x, u):
        away = (x[0] - 12) / 2
        return -46 * jnp.logaddexp(away, -away), u


def test_the_first_step_is_short_where_the_slope_is_steep():
    """A step as long as the slope leads to a noise of 0.00005, and to no mode."""
    peak = ascend(Steep(), jnp.zeros(1), jnp.zeros(1), 100, False)
    assert peak.converged
    assert peak.x[0] == pytest.approx(12, abs=1e-6)
    assert peak.history[1] - peak.history[0] < 24  # a step of one


def test_an_ascent_that_ends_before_its_steps_do_is_not_told_to_take_more():
    """Of a network with two modes the evidence jumps from step to step."""
    names, x = Hyperparameters(("a",), ((),)), jnp.zeros(1)
    peak = Peak(x, 1.0, np.ones(1), -np.eye(1), np.ones(5), False, np.inf, x, False)
    told = str(explain_no_maximum(names, x, peak, 100, True, "gauss_newton"))
    assert "No maximum after 4 of at most 100 steps" in told
    assert "different modes" in told and "refit=False" in told
    assert "raise steps" not in told and "enable_x64" not in told
    assert "with another key" in told and 'curvature="gauss_newton"' not in told


@jax.tree_util.register_static
class TwoModes(Objective):
    """A mode at 1, which a search from it loses beyond 0.3, and a worse one at -1, which holds."""

    def __call__(self, x, u):
        first = (u[0] > 0) & (x[0] < 0.3)
        value = jnp.where(first, -10 * (x[0] - 0.2) ** 2, -6 + x[0] * jnp.sin(20 * x[0]))
        return value, jnp.where(first, 1.0, -1.0)[None]


def test_a_step_that_is_too_long_does_not_lead_to_another_mode_for_good():
    """The first one is as long as one in the logarithm."""
    peak = ascend(TwoModes(), jnp.zeros(1), jnp.ones(1), 100, False)
    assert peak.converged
    assert peak.x[0] == pytest.approx(0.2, abs=1e-6)
    assert peak.mode[0] == 1
