"""Pytrees of the package: two classes are never one structure, with which JAX looks up what it has compiled."""

from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

import laplacebook
from laplacebook.base.pytrees import STATIC, register_dataclass
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from tests.models import coin


@dataclass(frozen=True)
class Base:
    kind: str = field(metadata=STATIC)
    x: float
    y: float


@register_dataclass
class One(Base):
    pass


@register_dataclass
class Other(Base):
    pass


@jax.tree_util.register_dataclass
class Reference(Base):
    pass


class GivenOne(Base):
    pass


class GivenOther(Base):
    pass


for given in (GivenOne, GivenOther):
    jax.tree_util.register_dataclass(given)


def test_of_equal_fields_two_classes_are_two_structures():
    assert jax.tree.structure(One("a", 1.0, 2.0)) == jax.tree.structure(One("a", 3.0, 4.0))
    assert jax.tree.structure(One("a", 1.0, 2.0)) != jax.tree.structure(One("b", 1.0, 2.0))
    assert jax.tree.structure(One("a", 1.0, 2.0)) != jax.tree.structure(Other("a", 1.0, 2.0))


def test_else_it_is_as_jax_has_it():
    mine, theirs = One("a", 1.0, 2.0), Reference("a", 1.0, 2.0)
    assert jax.tree_util.tree_leaves_with_path(mine) == jax.tree_util.tree_leaves_with_path(theirs)
    assert jax.tree.map(lambda x: 2 * x, mine) == One("a", 2.0, 4.0)


def test_a_likelihood_is_not_called_for_a_posterior():
    densities = (kind.of(coin, (np.ones(9),)) for kind in (ModelDensity, LikelihoodDensity))
    posterior, likelihood = map(jax.tree.structure, densities)
    assert posterior != likelihood


def test_arguments_of_two_classes_are_two_programs():
    def model(given):
        return given

    one, again, other = (
        ModelDensity.of(model, ([kind("a", np.ones(2), np.ones(2))],))
        for kind in (GivenOne, GivenOne, GivenOther)
    )
    assert jax.tree.structure(one) == jax.tree.structure(again)
    assert jax.tree.structure(one) != jax.tree.structure(other)


def test_all_classes_are_registered_so():
    files = Path(laplacebook.__file__).parent.rglob("*.py")
    by_jax = [file.stem for file in files if "tree_util.register_dataclass" in file.read_text()]
    assert by_jax == ["pytrees"]  # which says what it is in place of
