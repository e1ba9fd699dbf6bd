r"""A number in the prose of a chapter is printed, asserted or given: none is only typed.

What counts as typed: in Markdown cells, captions and alternative texts, inside mathematics and
tables too, a decimal (3.14, -0.05, 2.5e-3, 6\cdot10^{-8}, 10^{-8}), a percentage (38 %, seven per
cent) and a ratio (12 times as many, a factor of three). Not code, targets of links and roles,
DOIs, the version of Python, numbers of sections and equations. Integers, fractions such as 1/110
and quantities in words ("a third") do not count.

What backs it, in its part of the page (from one heading to the next), or anywhere on the page for
a number of three digits or more and for the summary:

- a number in a text output, rounded to the digits typed (a percentage may be printed as a
  fraction and the other way round; a typed minus sign must be printed; a whole ratio is backed by
  a printed decimal, an integer before "times", or one from 100 on, to the digits of its words);
- the same number in an `assert`: the prose states a bound, and the cell checks it;
- in a caption or an alternative text, the same number in the code of the figure: its inputs;
- prose_givens.toml, which says for each chapter what is given, and why.
"""

import ast
import re
from decimal import Decimal
from math import prod
from typing import NamedTuple

from IPython.core.inputtransformer2 import TransformerManager

ONES = "one two three four five six seven eight nine ten eleven twelve"
WORDS = {word: str(n) for n, word in enumerate(ONES.split(), 1)}
WORDS |= {"fifteen": "15", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50"}
WORDS |= {"sixty": "60", "hundred": "1e2", "thousand": "1e3", "million": "1e6"}

NOT_PROSE = [
    r"(?ms)^ *(`{3,}|~{3,})\w[^\n]*\n.*?^ *\1 *$",  # code with its language; directives have {
    r"(?m)^ *(?:`{3,}|:{3,})(?:\{[\w:-]+\}|$)",
    r"(?m)^:[\w-]+:.*$",
    r"(?:\{[\w:-]+\})?(`+)[^`\n]+\1",
    r"\]\([^)\s]*\)",
    r"(?i)\b(?:doi|arxiv):\s?\S+",
    r"(?i)\b(?:sections?|equations?|Python)\s[\d.]+(?:(?:, | and | to )[\d.]*\d)*",
    r"\b\d+\.\d+\.\d+(?:\.\d+)*\b",
]
SPACE = r"(?:\s|\\,|~)*"
DECIMAL = r"\d+(?:,\d{3})*(?:\.\d+)?"
WORD = rf"\b(?:{'|'.join(WORDS)})(?:[ -](?:hundred|thousand|million))*\b"
ABOUT = r"(?:(?:about|nearly|almost|some|over|more than|less than|at least|at most) )?"
COMPARED = "as|more|fewer|less|smaller|larger|too|its|that|wider|higher|lower|slower|faster"
TYPED = re.compile(
    rf"(?<![\w.])10\^\{{(?P<alone>-\d+)\}}"
    rf"|(?:(?<![\w.)}}])(?P<sign>[-−]|minus ))?(?<![\w.])(?P<digits>{DECIMAL}|{WORD})(?!\.?\d)"
    rf"(?:e(?P<e>[-+]?\d+)|{SPACE}\\(?:cdot|times){SPACE}10\^\{{?(?P<power>-?\d+)\}}?)?"
    rf"(?P<unit>{SPACE}\$?{SPACE}(?:\\?%|per\scent\b|-?fold\b|times(?=\s(?:{COMPARED})\b)))?"
    rf"|\bfactors? of {ABOUT}\$?(?P<of>{DECIMAL}|{WORD})"
)
PRINTED = re.compile(
    r"(?P<sign>-)?(?<![\w.])(?P<digits>\d+(?:,\d{3})+|\d+\.?\d*|\.\d+)(?:e(?P<e>[-+]?\d+))?"
    r"(?P<unit> ?%| times\b)?"
)
PAGE = None  # in place of the title of a part


class Number(NamedTuple):
    """A number as written; step is one unit of its last digit, unit one of "", "%", "ratio"."""

    text: str
    value: Decimal
    step: Decimal
    unit: str


def number(text, digits, exponent, sign=None, unit=""):
    value = Decimal(digits.replace(",", "")).scaleb(int(exponent or 0))
    step = Decimal(1).scaleb(value.as_tuple().exponent)
    return Number(" ".join(text.split()), -value if sign else value, step, unit)


def in_digits(text):
    """The digits of a number that may be spelled: four thousand is 4E+3, of one digit."""
    words = re.split("[ -]", text)
    return text if text[0].isdigit() else str(prod(Decimal(WORDS[word]) for word in words))


def typed(text):
    """The numbers typed in a text."""
    for pattern in NOT_PROSE:
        text = re.sub(pattern, " ; ", text)
    text = re.sub(r"(\\[a-zA-Z]+)(?=\d)", r"\1 ", text)
    found = []
    for match in TYPED.finditer(text):
        m = match.groupdict()
        if m["alone"]:
            found.append(number(match[0], "1", m["alone"]))
            continue
        exponent, unit = m["e"] or m["power"], m["unit"] or m["of"] or ""
        unit = "%" if re.search("%|cent", unit) else "ratio" if unit else ""
        if unit or exponent or "." in m["digits"]:
            digits = in_digits(m["digits"] or m["of"])
            found.append(number(match[0], digits, exponent, m["sign"], unit))
    return found


def printed(cell):
    """The numbers in the text outputs; the unit of those beside others in % is in doubt: "?"."""
    found = []
    for output in cell.get("outputs", []):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        doubt = "?" if re.search("%|per cent", text) else ""
        for match in PRINTED.finditer(text):
            unit = {"": doubt, "%": "%", "times": "ratio"}[(match["unit"] or "").strip()]
            found.append(number(match[0], match["digits"], match["e"], match["sign"], unit))
    return found


def agree(claim, output):
    """Whether an output, rounded to the digits of a claim, is that claim."""
    if claim.unit == "ratio" and claim.value < 100 and output.unit == "" and output.step >= 1:
        return False
    if claim.unit == "%":
        powers = {"%": [0], "?": [0, 2]}.get(output.unit, [2])
    else:
        powers = {"%": [-2], "?": [0, -2]}.get(output.unit, [0])
    signed = output.value if claim.value < 0 else abs(output.value)
    return any(
        output.step.scaleb(power) <= claim.step
        and abs(signed.scaleb(power) - claim.value) <= claim.step / 2
        for power in powers
    )


def asserts(node):
    """Whether a node is an assert statement or a call such as np.testing.assert_allclose."""
    name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
    return isinstance(node, ast.Assert) or name.startswith("assert_")


def constants(source, inside=lambda node: True):
    """The numbers in code, or in some of its nodes."""
    tree = ast.parse(TransformerManager().transform_cell(source))
    nodes = [n for outer in ast.walk(tree) if inside(outer) for n in ast.walk(outer)]
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {Decimal(repr(value)) for value in values if type(value) in (int, float)}


def pieces(notebook):
    """(heading of its part, cell, text) of each piece of prose and, for code, of its captions."""
    title, found = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for text in re.split(r"(?m)^(?=###? )", cell.source):
                title = text.splitlines()[0] if text.startswith("##") else title
                found.append((title, cell, text))
        else:
            meta = cell.metadata.get("mystnb", {})
            words = meta.get("figure", {}).get("caption", ""), meta.get("image", {}).get("alt", "")
            found.append((title, cell, "\n".join(words)))
    return found


def unbacked(notebook, givens):
    """What is typed without backing, and which givens are typed nowhere."""
    stale, complaints, outputs, asserted = dict(givens), [], {}, {}
    for title, cell, _ in pieces(notebook):
        for part in (title, PAGE) if cell.cell_type == "code" else ():
            outputs.setdefault(part, []).extend(printed(cell))
            asserted.setdefault(part, set()).update(constants(cell.source, asserts))
    for title, cell, text in pieces(notebook):
        inputs = constants(cell.source) if cell.cell_type == "code" else set()
        for claim in typed(text):
            digits = len(str(int(abs(claim.value) / claim.step)))
            part = PAGE if digits >= 3 or title == "## Summary" else title
            size = abs(claim.value).scaleb(-2 if claim.unit == "%" else 0)
            if claim.text in givens:
                stale.pop(claim.text, None)
            elif size not in asserted.get(part, set()) | inputs and not any(
                agree(claim, output) for output in outputs.get(part, [])
            ):
                complaints.append(f"cell {cell.id}: {claim.text} is not printed")
    return complaints + [f"given, and typed nowhere: {text} ({why})" for text, why in stale.items()]
