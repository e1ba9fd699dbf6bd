"""The file of an approximation: its numbers, and what is needed to notice that they are another model's.

It is a NumPy archive of plain arrays with a header in JSON; nothing in it is ever executed. The
model and its data are not in it.
"""

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.checks import require_working_precision
from laplacebook.base.errors import LaplaceError, UnsupportedModel, failed_fit
from laplacebook.base.quick import jit_quickly
from laplacebook.base.version import __version__
from laplacebook.curvature.settings import Settings
from laplacebook.fit.digest import WIDTH, digests
from laplacebook.gaussian.as_arrays import from_arrays, to_arrays
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.plain_function import is_plain
from laplacebook.model.sites import Site
from laplacebook.model.trace import Terms
from laplacebook.search.certificate import Certificate

_Found = TypeVar("_Found")
_FORMAT = 1
_PRECISION = "precision/"  # before the name of each of its arrays
_OTHER = "other/"  # before the number of another mode, and the names of its arrays
_FOUND = "found/"  # likewise, of a mode that a diagnosis found
ARGUMENT = "argument/"  # before the name of each array among the arguments
_FIXED = "fixed/"  # before the name of each site that the last layer takes as known


class Stored(NamedTuple):
    """One mode of an approximation as a file holds it: without the model and its data.

    Attributes:
        kind: of the density.
        space: of the Gaussian.
        sites: the latent sites.
        mode: their values on the scale of the model, by site.
        mode_vector: u_MAP, shape (D,).
        precision: A.
        along: H A^-1 s of each direction s of :func:`look`, shape (n, D), with the Hessian H of the
            negative log joint; of the first one alone in a file of an earlier package.
        log_likelihood: at the mode.
        log_prior: at the mode.
        certificate: of the fit.
        settings: of the fit.
        fixed: the values of the sites that a last layer takes as known, by site.
        data: digests of the arguments and of what is observed; none in a file of an earlier package.
    """

    kind: type[ModelDensity]
    space: str
    sites: tuple[Site, ...]
    mode: dict[str, Array]
    mode_vector: Array
    precision: Precision
    along: Float[Array, "n D"]
    log_likelihood: Array
    log_prior: Array
    certificate: Certificate
    settings: Settings
    fixed: dict[str, Array]
    data: tuple[dict[str, np.ndarray], np.ndarray]


def save(
    approx: Any, path: str | os.PathLike, beside: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Write the numbers of an approximation to a file.

    Args:
        approx: a ``LaplaceApproximation``, whose class imports this module to have the method.
        path: of the file.
        beside: what else the header has, of an approximation that is made of this one.

    Raises:
        LaplaceError: the fit failed.
        UnsupportedModel: it is the approximation of a plain density.
    """
    if is_plain(approx.density):
        raise UnsupportedModel(
            "This is the approximation of a plain density: no model could be brought to load it.",
            remedy="write the density as a NumPyro model with numpyro.factor, and fit that.",
        )
    if not approx.certificate.converged:
        raise failed_fit("This fit", "there is nothing to save")
    require_working_precision("This fit", approx.mode_vector)
    header = {
        "maximum_likelihood": isinstance(approx.density, LikelihoodDensity),
        "space": approx.space,
        "certificate": [field.name for field in fields(approx.certificate)],
        "settings": asdict(approx.settings),
        "other_modes": len(approx.other_modes),
        "settings_of_others": [asdict(other.settings) for other in approx.other_modes],
        **beside,
    }
    modes = [approx, *approx.other_modes]
    verdicts, found = _verdicts(modes)
    if verdicts:
        header["verdicts"] = verdicts
        header["settings_of_found"] = [asdict(mode.settings) for mode in found]
    arrays = _arrays(approx)
    for prefix, beside_it in ((_OTHER, modes[1:]), (_FOUND, found)):
        for i, other in enumerate(beside_it):
            arrays |= {f"{prefix}{i}/{name}": value for name, value in _arrays(other).items()}
    write(path, approx.density, header, arrays)


def _verdicts(modes: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
    """What diagnoses said of each mode, nothing where none was made, and the modes that they found beside those."""
    known, verdicts = list(modes), []
    for one in known:  # which grows
        known += [mode for mode in one.found if not any(mode is other for other in known)]
        found = [i for mode in one.found for i, other in enumerate(known) if mode is other]
        verdicts.append([one._diagnosed, one.of_shape, found, one._unseen])
    made = any(one._diagnosed is not None for one in known)
    return verdicts if made else [], known[len(modes) :]


def write(
    path: str | os.PathLike,
    density: ModelDensity,
    header: dict[str, Any],
    arrays: Mapping[str, Any],
) -> None:
    """Write an archive.

    Args:
        path: of the file.
        density: what is approximated, of which the header has the name and the sites.
        header: what else it has.
        arrays: by name.
    """
    whole = {
        "format_version": _FORMAT,
        "laplacebook_version": __version__,
        "model": density.name,
        "sites": [[site.name, site.shape, site.value_shape] for site in density.sites],
        **header,
    }
    _write(path, whole, arrays)


def add(path: str | os.PathLike, header: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write more into an archive.

    Args:
        path: of the file.
        header: what else its header has.
        arrays: further ones, by name.
    """
    archive = Archive.read(Path(path))
    _write(path, archive.header | header, {**archive.arrays, **arrays})


def _write(path: str | os.PathLike, header: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    named = {
        "header": np.array(json.dumps(header)),
        **{n: np.asarray(x) for n, x in arrays.items()},
    }
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **named)
    Path(path).write_bytes(archive.getvalue())


def _arrays(approx: Any) -> dict[str, Any]:
    """The numbers of one mode, by name."""
    along = look(approx.density, approx.mode_vector, approx.precision)[2]
    arguments, observed = digests(approx.density, approx.mode_vector)
    arrays = {
        "mode_vector": approx.mode_vector,
        "along": along[0],
        "along_others": along[1:],
        "observed": observed,
        "log_likelihood": approx.log_likelihood,
        "log_prior": approx.log_prior,
    }
    arrays |= {_PRECISION + name: value for name, value in to_arrays(approx.precision).items()}
    arrays |= {f"mode/{name}": value for name, value in approx.mode.items()}
    arrays |= {ARGUMENT + name: value for name, value in arguments.items()}
    for field in fields(approx.certificate):
        arrays[f"certificate/{field.name}"] = getattr(approx.certificate, field.name)
    model = approx.density.model
    fixed = model.fixed if isinstance(model, LastLayer) else {}
    return arrays | {_FIXED + name: value for name, value in fixed.items()}


class Archive(NamedTuple):
    """What is in a file of this format, as it stands there.

    Attributes:
        path: of the file.
        header: what is no array.
        arrays: by name.
    """

    path: Path
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @classmethod
    def read(cls, path: Path) -> "Archive":
        """Of a file.

        Raises:
            FileNotFoundError: there is no such file.
            LaplaceError: it is a folder, damaged, or another program's, or of a newer version.
        """
        if path.is_dir():
            raise LaplaceError(
                f"{path} is a folder, not the file of a saved approximation.",
                remedy="pass the path of the file, with the name that save was given.",
            )
        content = path.read_bytes()
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = dict(json.loads(str(arrays.pop("header"))))
            version = header["format_version"]
        except Exception as error:  # NumPy's and Python's readers tell damage in many ways
            raise _damaged(path, error) from error
        if version != _FORMAT:
            raise LaplaceError(
                f"{path} has format {version}; this version of laplacebook reads format {_FORMAT}.",
                causes=[f"laplacebook {header.get('laplacebook_version')} wrote it"],
                remedy="install that version of laplacebook, or fit again.",
            )
        return cls(path, header, arrays)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The latent sites."""
        return tuple(Site(name, tuple(u), tuple(value)) for name, u, value in self.header["sites"])

    def parsed(self, parse: Callable[["Archive"], _Found], working: str) -> _Found:
        """What is made of it.

        Args:
            parse: makes it.
            working: the name of an array in the precision that JAX worked in.

        Raises:
            LaplaceError: it is damaged, or in a precision in which JAX does not work now.
        """
        try:
            found = parse(self)
            numbers = self.arrays[working]
        except (LookupError, TypeError, ValueError) as error:
            raise _damaged(self.path, error, self.header.get("laplacebook_version")) from error
        require_working_precision(str(self.path), numbers)
        return found


class Modes(NamedTuple):
    """All modes in a file.

    Attributes:
        own: the mode of the approximation, and its other modes.
        found: further ones, which a diagnosis found.
        verdicts: of those and these what ``LaplaceApproximation.remember`` takes, with the modes found as places among
            them; none where no diagnosis was made, and in a file of an earlier package.
    """

    own: list[Stored]
    found: list[Stored]
    verdicts: list[list[Any]]


def stored_modes(archive: Archive) -> Modes:
    """The modes in a file.

    Raises:
        LaplaceError: it is damaged, or in a precision in which JAX does not work now.
    """
    return archive.parsed(_parse_all, "mode_vector")


def _parse_all(archive: Archive) -> Modes:
    header = archive.header

    def beside(prefix: str, settings: list[dict[str, Any]]) -> list[Stored]:
        headers = [{**header, "settings": one} for one in settings]
        return [
            _parse(Archive(archive.path, one, within(archive.arrays, f"{prefix}{i}/")))
            for i, one in enumerate(headers)
        ]

    number = header.get("other_modes", 0)
    settings = header.get("settings_of_others", [header["settings"]] * number)
    if len(settings) != number:
        raise ValueError("its header has other settings than modes")
    own = [_parse(archive), *beside(_OTHER, settings)]
    found = beside(_FOUND, header.get("settings_of_found", []))
    verdicts = header.get("verdicts", [])
    if verdicts and len(verdicts) != len(own) + len(found):
        raise ValueError("its header has other verdicts than modes")
    return Modes(own, found, verdicts)


def _damaged(path: Path, error: Exception, version: str | None = None) -> LaplaceError:
    causes = ["it was cut short or damaged on its way", "another program wrote it"]
    if version not in (None, __version__):
        causes.append(f"laplacebook {version} wrote it, and this is {__version__}")
    return LaplaceError(
        f"{path} is not a whole file of a saved approximation: {error}",
        causes=causes,
        remedy="save the approximation again, or check the path.",
    )


def within(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: x for name, x in arrays.items() if name.startswith(prefix)}


def _parse(archive: Archive) -> Stored:
    header, arrays, sites = archive.header, archive.arrays, archive.sites
    numbers = {name: jnp.asarray(array) for name, array in arrays.items()}
    size = sum(site.size for site in sites)
    along = numbers["along"][None]
    if "along_others" in numbers:
        along = jnp.concatenate([along, numbers["along_others"]])
    stored = Stored(
        kind=LikelihoodDensity if header["maximum_likelihood"] else ModelDensity,
        space=header["space"],
        sites=sites,
        mode={site.name: numbers[f"mode/{site.name}"] for site in sites},
        mode_vector=numbers["mode_vector"],
        precision=from_arrays(within(numbers, _PRECISION)),
        along=along,
        log_likelihood=numbers["log_likelihood"],
        log_prior=numbers["log_prior"],
        certificate=Certificate(**{n: numbers[f"certificate/{n}"] for n in header["certificate"]}),
        settings=Settings(**header["settings"]),
        fixed=within(numbers, _FIXED),
        data=data_of(arrays),
    )
    shapes = [stored.mode_vector.shape, stored.precision.shape, stored.along.shape[1:]]
    shapes += map(jnp.shape, stored.mode.values())
    if shapes != [(size,)] * 3 + [site.value_shape for site in sites]:
        raise ValueError("its arrays do not fit together")
    if stored.space not in ("unconstrained", "constrained") or not stored.certificate.converged:
        raise ValueError("its header is not one of an approximation")
    return stored


def data_of(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The digests of the data in a file, as :func:`~laplacebook.fit.digest.digests` has them.

    Args:
        arrays: of the file.

    Raises:
        ValueError: they are none.
    """
    data = within(arrays, ARGUMENT), arrays.get("observed", np.empty((0, WIDTH)))
    if any(x.shape[-1:] != (WIDTH,) for x in (*data[0].values(), data[1])):
        raise ValueError("its digests of data are of another length")
    return data


@jit_quickly
def look(
    density: ModelDensity, u: Float[Array, " D"], precision: Precision
) -> tuple[Terms, Float[Array, ""], Float[Array, "3 D"]]:
    """What tells whether a model is the one of which u is the mode, and A the precision.

    Args:
        density: the log joint.
        u: shape (D,).
        precision: A.

    Returns:
        The terms at u, how far off the mode is, and H A^-1 s for three directions s, the first of
        them of ones, with the Hessian H of the loss: s itself where A is H, which says of any A
        whether H is what it was.
    """
    slope, terms = jax.grad(density.loss, has_aux=True)(u)
    frequencies = jnp.sqrt(jnp.asarray([0, 2, 3], u.dtype))

    def along(frequency: Array) -> Array:
        step = precision.solve(jnp.cos(frequency * jnp.arange(u.size, dtype=u.dtype)))
        return jax.jvp(lambda x: jax.grad(density.loss, has_aux=True)(x)[0], (u,), (step,))[1]

    decrement = jnp.sqrt(slope @ precision.solve(slope))
    return terms, decrement, jax.lax.map(along, frequencies)
