"""The dense layers of a NumPyro model, found in the program that computes its outputs.

No model has to be written in terms of layers for them to be seen: a weight is followed from the
vector u to the product, or the convolution, that it is a factor of.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array

from laplacebook.base import convolutions
from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import Atom, Constant, Equation, equations_of, evaluate
from laplacebook.model.sites import Site

#: what only moves numbers, as a function of an array of NumPy and of the parameters in JAX
MOVES: dict[str, Callable] = {
    "convert_element_type": lambda x, p: x,
    "copy": lambda x, p: x,
    "reshape": lambda x, p: x.reshape(p["new_sizes"]),
    "squeeze": lambda x, p: np.squeeze(x, p["dimensions"]),
    "transpose": lambda x, p: x.transpose(p["permutation"]),
    "broadcast_in_dim": lambda x, p: _broadcast(
        x, p["shape"], tuple(map(int, p["broadcast_dimensions"]))
    ),
    "slice": lambda x, p: _slice(x, p["start_indices"], p["limit_indices"], p["strides"]),
}

_ADDED = {"add", "sub", "add_any"}  # of a bias, whatever its axes


class Layer(NamedTuple):
    """A dense layer Z = X W, where W of shape (m, k) is a latent site or its transpose.

    A site with more axes than two is W if its numbers are those of W row by row. In a convolution X
    are the patches of what it is applied to.

    Attributes:
        site: which of the latent sites, from zero.
        axis: of the site, along which the layer sums: m inputs, zero for W, one for its transpose.
        positions: T, at how many positions (times, places) of a row the layer is applied.
        inputs: m.
        outputs: k.
    """

    site: int
    axis: int
    positions: int
    inputs: int
    outputs: int


class _Product(NamedTuple):
    """Where a layer stands: the equation, and which of its two operands is the weight.

    ``order``: of the inputs that the equation has, those of the site; None where it is the same.
    """

    equation: int
    operand: int
    order: np.ndarray | None = None


@dataclass(frozen=True)
class LayeredProgram:
    """A function of the latent sites and of other arguments, of which the layers are known.

    Attributes:
        layers: its dense layers, in the order of their sites.
        refused: for each matrix, or kernel of a convolution, that is not the weight of one layer, why.
    """

    layers: tuple[Layer, ...]
    refused: tuple[UnsupportedModel, ...]
    _products: tuple[_Product, ...]
    _equations: tuple[Equation, ...]
    _reads: dict[int, int]  # equations that read a site from u, and which
    _inputs: int
    _output: Atom

    def at_one_position(self) -> "LayeredProgram":
        """The same function, with those layers alone that are applied once to a row."""
        once = [i for i, layer in enumerate(self.layers) if layer.positions == 1]
        layers, products = self.layers, self._products
        return replace(
            self,
            layers=tuple(layers[i] for i in once),
            _products=tuple(products[i] for i in once),
        )

    def run(
        self, parts: Sequence[Array], *others: Array, perturbations: Sequence[Array]
    ) -> tuple[Array, list[Array]]:
        """Evaluate the function, with something added to what each layer computes.

        Args:
            parts: the latent sites as vectors: u in pieces.
            others: the other arguments of the function.
            perturbations: added to the outputs of each layer, shapes (T, k).

        Returns:
            The value of the function; and the inputs X of each layer, shapes (T, m).
        """
        values: dict[int, Any] = dict(zip(range(self._inputs), [None, *others], strict=True))
        values[0] = jnp.concatenate(parts)
        inputs: dict[int, Array] = {}
        at = {product.equation: i for i, product in enumerate(self._products)}

        def read(atom: Atom) -> Any:
            return atom.value if isinstance(atom, Constant) else values[atom]

        for i, equation in enumerate(self._equations):
            if i in self._reads:
                results = [parts[self._reads[i]]]
            else:
                operands = [read(atom) for atom in equation.inputs]
                results = evaluate(equation.source, operands)
            if i in at:
                product = self._products[at[i]]
                inputs[at[i]] = _layer_inputs(equation.source, operands, product)
                added = _layer_output(equation.source, perturbations[at[i]], product.operand)
                results = [results[0] + added.astype(results[0].dtype)]
            values.update(zip(equation.outputs, results, strict=True))
        return read(self._output), [inputs[i] for i in range(len(self.layers))]

    def backwards(
        self, parts: Sequence[Array], *others: Array
    ) -> tuple[Array, Callable[[Array], tuple[list[Array], list[Array]]], list[Array]]:
        """The function, and from what it returns back to the outputs of its layers and to the other sites.

        Args:
            parts: the latent sites as vectors: u in pieces.
            others: the other arguments of the function.

        Returns:
            Its value; a function of a cotangent of it, which returns those of the outputs of each layer, shapes
            (T, k), and of the sites that are no layers, shapes (d,); and the inputs X of each layer, shapes (T, m).
        """
        weights = {layer.site for layer in self.layers}
        of_others = [i for i in range(len(parts)) if i not in weights]

        def run(perturbations: list[Array], sites: list[Array]) -> tuple[Array, list[Array]]:
            moved = dict(zip(of_others, sites, strict=True))
            at = [moved.get(i, part) for i, part in enumerate(parts)]
            return self.run(at, *others, perturbations=perturbations)

        still = [jnp.zeros((x.positions, x.outputs), parts[x.site].dtype) for x in self.layers]
        return jax.vjp(run, still, [parts[i] for i in of_others], has_aux=True)


def find_layers(program: ClosedJaxpr, sites: tuple[Site, ...]) -> LayeredProgram:
    """The dense layers of a program.

    Args:
        program: what ``jax.make_jaxpr`` returns of a function of u, shape (D,), and perhaps of
            other arrays; it returns one array.
        sites: the latent sites, which u consists of.

    Returns:
        The :class:`LayeredProgram`.
    """
    equations, output = equations_of(program)
    uses, reads = _uses(equations, output, sites)
    seen: list[tuple[Layer, _Product]] = []
    refused: list[UnsupportedModel] = []
    for i, site in enumerate(sites):
        if len(site.shape) >= 2:
            try:
                seen.append(_only_layer(i, site, uses[i], equations))
            except UnsupportedModel as error:
                kinds = {_operation(equations, use) for use in uses[i]}
                is_matrix = len(site.shape) == 2 and not (kinds and kinds <= _ADDED)
                if is_matrix or convolutions.NAME in kinds:
                    refused.append(error)
    weights = Counter(product.equation for _, product in seen)
    found = [pair for pair in seen if weights[pair[1].equation] == 1]
    both = [sites[layer.site] for layer, product in seen if weights[product.equation] > 1]
    refused += [_no_layer(site, "it is multiplied by another latent site") for site in both]
    return LayeredProgram(
        tuple(layer for layer, _ in found),
        tuple(refused),
        tuple(product for _, product in found),
        tuple(equations),
        reads,
        len(program.jaxpr.invars),
        output,
    )


class _Use(NamedTuple):
    """Where a latent site is computed with: None for the equation if it is the output itself."""

    equation: int | None
    operand: int
    coordinates: np.ndarray  # which of its coordinates stands where


def _uses(
    equations: list[Equation], output: Atom, sites: tuple[Site, ...]
) -> tuple[list[list[_Use]], dict[int, int]]:
    """Where each site is used, and which equations read a whole site from u, the variable 0."""
    ends = np.cumsum([0, *(site.size for site in sites)])
    held: dict[Atom, np.ndarray] = {0: np.arange(ends[-1])}
    uses: list[list[_Use]] = [[] for _ in sites]
    reads: dict[int, int] = {}

    def note(equation: int | None, operand: int, atom: Atom) -> None:
        if isinstance(atom, int) and atom in held and held[atom].size:
            of = np.searchsorted(ends, held[atom], side="right") - 1
            for i in np.unique(of):
                uses[i].append(_Use(equation, operand, held[atom] - ends[i]))

    for i, (source, inputs, outputs) in enumerate(equations):
        move = MOVES.get(source.primitive.name)
        if move and len(inputs) == 1 and isinstance(inputs[0], int) and inputs[0] in held:
            index = held[outputs[0]] = move(held[inputs[0]], source.params)
            if inputs[0] == 0 and index.ndim == 1 and index.size:
                site = int(np.searchsorted(ends, index[0], side="right")) - 1
                if np.array_equal(index, np.arange(ends[site], ends[site + 1])):
                    reads[i] = site
        else:
            for operand, atom in enumerate(inputs):
                note(i, operand, atom)
    note(None, 0, output)
    return uses, reads


def _only_layer(
    number: int, site: Site, uses: list[_Use], equations: list[Equation]
) -> tuple[Layer, _Product]:
    """The one layer of which a site is the weight, and where it stands."""
    if not uses:
        raise _no_layer(site, "it does not enter the likelihood")
    if len(uses) > 1:
        raise _no_layer(site, f"it enters the likelihood at {len(uses)} places")
    ((at, operand, index),) = uses
    if at is None:
        raise _no_layer(site, "it is an output itself")
    source = equations[at].source
    if source.primitive.name not in ("dot_general", convolutions.NAME):
        raise _no_layer(site, f"it enters the likelihood by the operation '{source.primitive}'")
    if not all(jnp.issubdtype(x.aval.dtype, jnp.floating) for x in source.invars):
        raise _no_layer(site, "it is multiplied by complex numbers")
    if source.primitive.name == convolutions.NAME:
        return _convolution(number, site, index, source, _Product(at, operand))
    axes, batch = source.params["dimension_numbers"]
    if batch[operand]:
        raise _no_layer(site, "it is a stack of weights")
    contracted = list(axes[operand])
    free = [axis for axis in range(index.ndim) if axis not in contracted]
    inputs = int(np.prod([index.shape[axis] for axis in contracted], dtype=int))
    weight = index.transpose(contracted + free).reshape(inputs, -1)
    axis, order = _place_in_site(site, weight)
    other = source.invars[1 - operand].aval
    layer = Layer(number, axis, other.size // inputs, *weight.shape)
    is_same = np.array_equal(order, np.arange(inputs))
    return layer, _Product(at, operand, None if is_same else np.argsort(order))


def _convolution(
    number: int, site: Site, index: np.ndarray, source: Any, place: _Product
) -> tuple[Layer, _Product]:
    """The convolution of which a site is the kernel, with ``index`` where each of its numbers stands."""
    if why := convolutions.refusal(source, place.operand):
        raise _no_layer(site, why)
    weight = convolutions.as_matrix(source, index)
    axis, order = _place_in_site(site, weight)
    positions = source.outvars[0].aval.size // weight.shape[1]
    return Layer(number, axis, positions, *weight.shape), place._replace(order=np.argsort(order))


def _place_in_site(site: Site, weight: np.ndarray) -> tuple[int, np.ndarray]:
    """Whether a weight of coordinates is the site or its transpose, but for the order of its inputs."""
    (m, k), all_of_it = weight.shape, np.arange(site.size)
    if not np.array_equal(np.sort(weight, axis=None), all_of_it):
        raise _no_layer(site, "only parts of it are a factor there, or copies of it")
    order = np.argsort(np.argsort(weight[:, 0]))
    grids = {0: all_of_it.reshape(m, k), 1: all_of_it.reshape(k, m).T}
    # A row and a column have the same numbers in the same order.
    for axis in (1, 0) if site.shape[0] == k != m else (0, 1):
        if np.array_equal(weight, grids[axis][order]):
            return axis, order
    raise _no_layer(site, "the axis of its outputs is neither its first nor its last")


def _operation(equations: list[Equation], use: _Use) -> str | None:
    return None if use.equation is None else equations[use.equation].source.primitive.name


def _no_layer(site: Site, why: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"Site '{site.name}' has the shape {site.shape}, and is not the weight of one dense layer or "
        f"convolution: {why}. Its block of the curvature has no Kronecker factors.",
        causes=[
            "a weight that several layers share",
            "a matrix that is transformed (scaled, masked, exponentiated) before it is multiplied",
            "a convolution by groups, a table from which rows are taken, effects by group",
        ],
        remedy='use structure="block" or "diagonal", which take any site.',
    )


def _layer_inputs(source: Any, operands: list[Any], product: _Product) -> Array:
    """The matrix X of shape (T, m) with which a weight is multiplied."""
    x = operands[1 - product.operand]
    if source.primitive.name == convolutions.NAME:
        found = convolutions.patches(source, x)
    else:
        axes, _ = source.params["dimension_numbers"]
        contracted = list(axes[1 - product.operand])
        free = [axis for axis in range(x.ndim) if axis not in contracted]
        m = int(np.prod([x.shape[axis] for axis in contracted], dtype=int))
        found = jnp.transpose(x, free + contracted).reshape(-1, m)
    return found if product.order is None else found[:, product.order]


def _layer_output(source: Any, outputs: Array, operand: int) -> Array:
    """An array of shape (T, k) in the layout of what the equation of a layer computes."""
    if source.primitive.name == convolutions.NAME:
        return convolutions.as_output(source, outputs)
    outputs = outputs if operand else outputs.T
    return outputs.reshape(source.outvars[0].aval.shape)


def _broadcast(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    ones = [1] * len(shape)
    for axis, length in zip(axes, x.shape, strict=True):
        ones[axis] = length
    return np.broadcast_to(x.reshape(ones), shape)


def _slice(
    x: np.ndarray, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None
) -> np.ndarray:
    steps = strides or [1] * x.ndim
    return x[tuple(map(slice, starts, limits, steps))]
