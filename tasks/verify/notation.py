r"""Normalization of answers, so that math-verify reads them as a person does.

Gold answers and answers are rewritten before they are parsed, by the rules of ``_TABLE`` in their order.
"""

# ruff: noqa: RUF001 - the characters that are rewritten look like others

import re
from collections.abc import Callable
from fractions import Fraction

from tasks.verify.words import FUNCTIONS, is_word

_PLAIN = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_BRACED = r"\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}"
"""A group in braces, which may hold two more levels of groups."""
_ROW = r"(?<!\\)"
r"""Stands before a command of one character, because ``\\`` ends a line of a matrix, whatever follows."""
_STYLE = r"\\(?:bf|rm|it|sf|tt|sl)(?![a-zA-Z])"
_NUMBER = r"\d+(?:\.\d+)?"
_GAP = r"(?:\s|~|\\[ ,;:!]|\\q?quad(?![a-zA-Z]))"
_TEXT = r"\\(?:text|mbox|textbf|textrm|textnormal|mathrm)\s*\{"
_MODULUS = rf"(\(\s*)?(?:\\[bp]?mod(?![a-zA-Z])|{_TEXT}\s*mod\s*\}}){_GAP}*\{{?\s*(\d+|[a-z])\s*\}}?(?(1)\s*\))"
_SEPARATOR = re.compile(r"\s*,\s*|\s*,?\s*\\text\s*\{\s*(?:and|or)\s*\}\s*|\s+(?:and|or)\s+")
_BRACKETS = re.compile(r"([\[\]])([^\[\],;]+[,;][^\[\],;]+)([\[\]])")
_UNIT = re.compile(r"(?<![a-zA-Z\\])(?:i(?![a-zA-Z{_])(?<!\{i(?=\}))|I(?=\s*\^))|(?:(?<=frac|sqrt)|(?<=[}^]))\{i\}")
_CHINESE = "(?:(?![十百千万亿分半余多几至到或和折成])[\u4e00-\u9fff])"
_RANGED = re.compile(r"[<>|]|\\(?:[lg]e|ne|neq|mid|in)(?![a-zA-Z])")
"""Signs of an inequality or of a set."""
_DEGREES = re.compile(rf"({_NUMBER})\s*\^\s*(?:\\circ(?![a-zA-Z])|\{{\s*\\circ\s*\}})")
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE = rf"(?P<words>(?:{'|'.join(_SCALES)})(?:\s+(?:{'|'.join(_SCALES)}))*)(?![a-zA-Z])"
_VULGAR = (
    "½1/2 ⅓1/3 ⅔2/3 ¼1/4 ¾3/4 ⅕1/5 ⅖2/5 ⅗3/5 ⅘4/5 ⅙1/6 ⅚5/6 ⅐1/7 ⅛1/8 ⅜3/8 ⅝5/8 ⅞7/8 ⅑1/9 ⅒1/10"  # character, value
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()")
_CHARACTERS = str.maketrans(
    {entry[0]: r"\frac{{{}}}{{{}}}".format(*entry[1:].split("/")) for entry in _VULGAR.split()}
    | {chr(0xFF01 + index): chr(0x21 + index) for index in range(94)}  # full-width characters
    | dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000\t\n", " ")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
    | dict.fromkeys("\u200b\u2060\u2061\u2062\ufeff", "")
    | {
        "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": r"\cdot ", "÷": r"\div ", "⁄": "/", "π": r"\pi ",
        "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
        "±": r"\pm ", "∅": r"\emptyset ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∖": r"\setminus ",
        "°": r"^\circ ", "′": "'", "’": "'", "，": ",", "、": ",", "。": ".", "ℝ": r"\mathbb{R}",
        "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    }
)  # fmt: skip
_BASE = re.compile(
    r"(?<![\w.\\}])(?P<open>\(|\\overline\{)?(?P<digits>\d[\dA-Fa-f]*)(?(open)[)}])"
    r"_(?:\{\s*\(?(?:\\text\{\s*(?:base\s*)?)?(?P<base>\d+)[\s)}]*\}|(?P<short>\d))"
)


def _unwrap_style(found: re.Match[str]) -> str:
    """Return the content of a style, as a group in braces unless the style is the whole answer."""
    content = found[found.lastindex or 0].strip()
    return content if found.span() == (0, len(found.string)) else f"{{{content}}}"


def _without_spaces(found: re.Match[str]) -> str:
    return found[0].replace(" ", "")


def _exponent(found: re.Match[str]) -> str:
    return rf"{found[1].removesuffix('.')}\times 10^{{{int(found[2])}}}"


def _repeating(found: re.Match[str]) -> str:
    """Return the fraction that a repeating decimal is."""
    once, again = found["once"], found["group"] or found["digit"]
    tens, nines = 10 ** len(once), 10 ** len(again) - 1
    value = Fraction(int(f"{found['whole']}{once}" or "0") * nines + int(again), tens * nines)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _scaled(found: re.Match[str]) -> str:
    """Return the factors that words such as million are, and the text behind them."""
    product = "".join(rf"\times {_SCALES[word]}" for word in found["words"].split())
    return rf"{product}\text{{ {found['unit']}}}" if found["unit"] else product


def _interval(found: re.Match[str]) -> str:
    return f"{'[' if found[1] == '[' else '('}{found[2]}{']' if found[3] == ']' else ')'}"


def _both_signs(item: str) -> str:
    """Return an item of a list with its one plus-minus sign as two items."""
    return ",".join(item.replace(r"\pm", sign) for sign in "+-") if item.count(r"\pm") == 1 else item


def _in_text(found: re.Match[str]) -> str:
    return rf"{found[1]}\text{{ {found[2]}}}" if is_word(found[2]) else found[0]


def _without_range(found: re.Match[str]) -> str:
    """Remove a range of integers, but not from a set or an inequality, whose solutions it changes."""
    return found[0] if _RANGED.search(found.string[: found.start()]) else ""


_TABLE: tuple[tuple[str, str, str | Callable[[re.Match[str]], str]], ...] = (
    ("delimiters of mathematics have no meaning", rf"{_ROW}\\[()\[\]]|\$", " "),
    ("a full stop ends a sentence", r"(?<=\})\s*\.\s*$", ""),
    ("a per cent sign begins no comment", rf"{_ROW}%", r"\\%"),
    ("Markdown's bold type is not mathematics", r"^\s*\*\*(.+)\*\*\s*$", r"\1"),
    ("raised digits are an exponent", "[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+", lambda found: f"^{{{found[0].translate(_RAISED)}}}"),
    ("lowered digits are an index", "[₀₁₂₃₄₅₆₇₈₉₊₋₍₎]+", lambda found: f"_{{{found[0].translate(_LOWERED)}}}"),
    ("∛ is a root", r"∛\s*(?:\(([^()]*)\)|(\d+|[a-zA-Z]))", lambda found: rf"\sqrt[3]{{{found[1] or found[2]}}}"),
    (
        "√ is a root of the number, letter or bracket behind it",
        r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+(?:\.\d+)?|[a-zA-Z]|\\pi))",
        lambda found: rf"\sqrt{{{found[1] or found[2] or found[3]}}}",
    ),
    ("colours are not mathematics", rf"\\textcolor\s*\{{[^{{}}]*\}}\s*{_BRACED}", _unwrap_style),
    ("colours are not mathematics", r"\\color\s*\{[^{}]*\}", ""),
    ("space is not mathematics", r"\\(?:[hv]space\*?|v?phantom|hphantom|label|tag)\s*\{[^{}]*\}", ""),
    (
        "lines and styles are not mathematics",
        rf"\\(?:underline|uline|boldsymbol|bm|pmb|emph|ensuremath|mathord|boxed)\s*{_BRACED}",
        _unwrap_style,
    ),
    ("bold type is not mathematics", rf"^\s*\\mathbf\s*(?=.*[^a-zA-Z\s{{}}]){_BRACED}\s*$", _unwrap_style),
    (
        "a number in bold type is a number",
        r"\\(?:mathbf|mathit|textbf|textit|text|mathrm)\s*\{(?:\s|\\ )*([-+]?[\d.,]*\d\s*(?:\\%)?)\s*\}",
        _unwrap_style,
    ),
    ("words in a style are words", rf"\{{\s*{_STYLE}\s*([a-zA-Z][a-zA-Z ]*)\}}", r"\\text{\1}"),
    ("a number in a style is a number", rf"\{{\s*{_STYLE}\s*([^{{}}]*)\}}", _unwrap_style),
    (
        "sizes and styles are not mathematics",
        r"\\(?:bf|it|sf|tt|sl|(?:display|text|script)style|boldmath|tiny|small|normalsize|[lL]arge|LARGE|[hH]uge|limits"
        r"|[bB]igg?[lmr]?|middle)"
        r"(?![a-zA-Z])",
        " ",
    ),
    ("braces have names too", r"\\([lr])brace(?![a-zA-Z])", lambda found: r"\{" if found[1] == "l" else r"\}"),
    ("a line of a matrix may end with a distance", r"\\\\\s*\[-?[\d.]+\s*(?:pt|em|ex|mm|cm)\]", r"\\\\ "),
    ("all of these are text", r"\\(?:hbox|textsf|texttt|textsc|textup|textsl|mathsf|mathtt)(?=\s*\{)", r"\\text"),
    (
        "letters in upright type that are no units are letters",
        r"\\(?:mathrm|rm|operatorname|text)\s*\{\s*([abefijknpqruvwxyz])\s*\}",
        r" \1 ",
    ),
    ("bold letters are letters", r"\\math(?:bf|it)(?:\s+([a-z])(?![a-zA-Z])|\s*\{\s*([a-z])\s*\})", r" \1\2 "),
    ("space at the edge of a group is nothing", r"(?<=\{) +| +(?=\})", ""),
    ("an upright index is an index", r"_\{\s*\\(?:mathrm|text|rm|textrm)\s*\{\s*([^{}]*?)\s*\}\s*\}", r"_{\1}"),
    ("an index is not an operator", r"_\{\s*\\(max|min|sup|inf|lim)\s*\}", r"_{\1}"),
    ("\\! is not a space", rf"(?:(?<=\d,) +)?{_ROW}\\!\s*", ""),
    (
        "commands for space are space",
        rf"{_ROW}\\[,;:> ]|~(?!=)|\\(?:quad|qquad|enspace|thinspace|medspace|thickspace)(?![a-zA-Z])",
        " ",
    ),
    ("an empty group is nothing", r"(?<=\d)\{\s*\}(?=\d)", " "),
    (
        "digits in groups of three are one number",
        r"(?<![\d.,^_\w}])(?<![\d^_}] )\d{1,3}(?: +\d{3})+(?! *\d)(?:\.\d+)?",
        _without_spaces,
    ),
    (
        "a comma separates thousands in an answer that is no list",
        r"^(?!.*\\\{)([^,(\[]*?)(?<![\d.^_])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,])([^,]*)$",
        lambda found: found[1] + found[2].replace(",", "") + found[3],
    ),
    (
        "decimals in groups of three are one number",
        r"(?<![\w.,])\d+\.\d{3}(?: \d{3})*(?: \d{1,3})(?! *\d)",
        _without_spaces,
    ),
    (
        "4.5e33 is a power of ten; 2e-1 can be one too, or 2e - 1: see readings",
        r"(?<![\w.\\}^])(\d+\.\d*|\d*\.\d+|\d+)[eE]([+-]?\d{2,}|\d|(?<=1[eE])[+-]\d)(?![\w{^(]|\.\d)",
        _exponent,
    ),
    ("dots mark the digits that repeat", r"\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?", r"\\overline{\1\2\3}"),
    (
        "0.1\\overline{6} is a fraction",
        r"(?<![\w.])(?<!\d,)(?P<whole>\d{0,30})\.(?P<once>\d{0,30})\s*\\(?:overline|bar)\s*"
        r"(?:\{\s*(?P<group>\d{1,30})\s*\}|(?P<digit>\d))(?!\s*_)",
        _repeating,
    ),
    ("4.5e-3 is a power of ten", r"(?<![\w.\\}^])(\d+\.\d*|\d*\.\d+)[eE]([+-]?\d+)(?![\w{^(]|\.\d)", _exponent),
    ("x and * before a power of ten multiply", r"(?<=\d)\s*(?:[xX]|\*)\s*(?=10\s*\^)", r"\\times "),
    ("an exponent has all of its digits", r"\^\s*([+-]\s*\d+)", r"^{\1}"),
    ("a number may end with its point", r"(?<=\d)\.(?=\s*(?:[,;)\]/*+\-^]|\\?\}|\\right|$))", ""),
    ("1 1/2 is a mixed number", r"(?<![\w.^_/}])(?<![\w.^_/}] )(\d+) +(\d+) */ *(\d+)(?![\w.^!])", r"\1\\frac{\2}{\3}"),
    ("\\pi is a whole numerator", r"\\([cdt]?)frac\s*\\pi\s*(?:(\d)|(?=\{))", r"\\\1frac{\\pi}\2"),
    ("a fraction has these names too", r"\\(?:nicefrac|sfrac|xfrac|flatfrac)(?=\s*\{)", r"\\frac"),
    (
        "a fraction in per cent is a decimal",
        r"(\d{0,9})\s*\\[cdt]?frac\s*(?:\{(\d{1,9})\}\s*\{([1-9]\d{0,8})\}|(\d)([1-9]))\s*\\%",
        lambda found: rf"{int(found[1] or 0) + int(found[2] or found[4]) / int(found[3] or found[5]):.12f}\%",
    ),
    ("\\over makes a fraction", r"\{([^{}]+?)\\over(?![a-zA-Z])([^{}]+)\}", r"{\\frac{\1}{\2}}"),
    (
        "a factorial is raised as a whole",
        r"(\d+|(?<![a-zA-Z\\])[a-zA-Z]|\([^()]*\))\s*!\s*(?=\^)",
        r"(\1!)",
    ),
    ("a binomial may have no braces", r"\\[dt]?binom\s*(\d)\s*(\d)", r"\\binom{\1}{\2}"),
    ("5!=120 is an equation", r"(?<=\d)!=", "! ="),
    ("\\choose makes a binomial", r"\{([^{}]+?)\\choose(?![a-zA-Z])([^{}]+)\}", r"{\\binom{\1}{\2}}"),
    ("\\over makes a fraction", r"^([^{}]+?)\\over(?![a-zA-Z])([^{}]+)$", r"\\frac{\1}{\2}"),
    (
        "a degree has these names too",
        r"\\degrees?(?![a-zA-Z])|\\textdegree(?![a-zA-Z])|(?<=\d)\^\{?o\}?(?![a-zA-Z])",
        r"^\\circ ",
    ),
    (
        "degrees have a unit too",
        r"(\^\s*\{?\\circ\s*\}?)\s*(?:\\(?:text|mathrm|textrm)\s*\{\s*[CFK]\s*\}|[CF](?![a-zA-Z]))",
        r"\1",
    ),
    ("the empty set has these names too", r"\\varnothing(?![a-zA-Z])|^\s*(?:Ø|ø|\\O)\s*$", r"\\emptyset "),
    ("and has these names too", r"\\(?:land|wedge)(?![a-zA-Z])", r"\\text{ and }"),
    ("or has these names too", r"\\(?:lor|vee)(?![a-zA-Z])", r"\\text{ or }"),
    ("relations have these names too", r"\\(l|g)eq(?:slant|q)?(?![a-zA-Z])", r"\\\1e "),
    (
        "sets of numbers have these names too",
        r"\\(?:mathbb|mathbf|Bbb)\s*([RNZQC])(?![a-zA-Z])|\\(?:mathbf|Bbb)\s*\{([RNZQC])\}",
        lambda found: rf"\mathbb{{{found[1] or found[2]}}}",
    ),
    (
        "the integers that a letter runs over are no part of the answer",
        rf"(?<=[^\s,;(])(?:{_GAP}|[,;(]|\\left|{_TEXT}[^{{}}]*\}}){{1,8}}(?<![a-zA-Z])[a-zA-Z]{_GAP}{{0,3}}\\in(?![a-zA-Z])"
        rf"{_GAP}{{0,3}}(?:\\mathbb\{{[ZN]\}}|[ZN])(?:[_^](?:[+*]|\{{[+*]\}}))?(?:\s|\\right|\)){{0,8}}$",
        _without_range,
    ),
    (
        "a difference of sets has these signs too",
        r"\\backslash(?![a-zA-Z])|(?<=\\mathbb\{R\})\s*-\s*(?=\\\{)",
        r"\\setminus ",
    ),
    (
        "the set of the x with a relation is that relation",
        r"^\s*(?:\\left\s*)?\\\{\s*([a-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid|\||:)"
        r"(?=.*(?:[<>]|\\(?:[lg]e|ne|neq)(?![a-zA-Z])))((?:(?!\\in(?![a-zA-Z])|\\mathbb)[^|:,])*?)(?:\\right\s*)?\\\}\s*$",
        r"\2",
    ),
    (
        "an open end of an interval may have a bracket that points away",
        r"^(?=\s*\]|.*\[\s*$).*$",
        lambda found: _BRACKETS.sub(_interval, found[0]),
    ),
    (
        "a ratio of three or more is a list in its order: math-verify divides, so that 2:1:3 is 2:3:1",
        r"^(?:[^=,;:]*:[^=,;]*=)?([^:,;=()|]+(?::[^:,;=()|]+){2,})$",
        lambda found: f"({found[1].replace(':', ',')})",
    ),
    ("a vector may have angle brackets", r"(?:\\left\s*)?\\langle([^<>|]+?,[^<>|]+?)(?:\\right\s*)?\\rangle", r"(\1)"),
    ("2(3) is a product", r"(?<=[\d)])(?<![_^]\d)\s*(?=(?:\\left\s*)?\(\s*[-\d][^(),]*\))", r" \\cdot "),
    ("multiplication has these names too", r"\\(?:ast|cdotp)(?![a-zA-Z])", r"\\cdot "),
    ("a derivative is a name", r"(?<=[a-zA-Z])'+(?![a-zA-Z^'])", lambda found: r"^{%s}" % (len(found[0]) * r"\prime")),
    (
        "gcd and lcm of letters are functions",
        r"\\(?:operatorname\s*\{)?(gcd|lcm)\s*\}?\s*(?:\\left)?\(([^()]*(?<![a-zA-Z\\])[a-zA-Z][^()]*?)(?:\\right)?\)",
        lambda found: rf"\tilde{{{found[1]}}}({','.join(sorted(found[2].replace(' ', '').split(',')))})",
    ),
    ("letters that name a number are that number", r"(?<![a-zA-Z\\{])pi(?![a-zA-Z])|\\text\s*\{\s*pi\s*\}", r"\\pi "),
    ("infinity is infinite", r"\\text\s*\{[iI]nfinity\}|(?<![a-zA-Z\\])(?:infinity|infty)(?![a-zA-Z])", r"\\infty "),
    (
        "a function needs no backslash",
        rf"(?<![a-zA-Z\\{{])({FUNCTIONS})(?=\s*[({{\d^\\]|\s+[a-z](?![a-zA-Z]))",
        r"\\\1",
    ),
    (
        "the degrees of a function's angle count: cos 60° is 1/2",
        r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])[^=,;]*?\^\s*\{?\s*\\circ[^=,;]*",
        lambda found: _DEGREES.sub(r"\\frac{\1\\pi}{180}", found[0]),
    ),
    ("\\pi is a whole denominator", r"(\\[cdt]?frac\s*(?:\{[^{}]*\}|\d))\s*\\pi(?![a-zA-Z])", r"\1{\\pi}"),
    (
        "a root may have no braces",
        r"\\sqrt\s*(\[\d+\])?\s*(\\(?:[cdt]?frac\s*(?:\d\d|\{[^{}]*\}\s*\{[^{}]*\})"
        r"|(?:pi|alpha|beta|theta|lambda|mu|rho|sigma|phi|omega)(?![a-zA-Z])))",
        r"\\sqrt\1{\2}",
    ),
    ("a root is of the whole number", r"\\sqrt\s*(\d{2,})", r"\\sqrt{\1}"),
    (
        "a root may have round brackets",
        r"\\sqrt\s*(\[\d+\])?\s*\(([^()]*)\)|\\sqrt\s*(\[\d+\])\s*([\da-z])",
        lambda found: rf"\sqrt{found[1] or found[3] or ''}{{{found[2] or found[4]}}}",
    ),
    (
        "gamma is a letter, and Gamma a function only with an argument: math-verify takes \\gamma-1 for infinity",
        r"\\(?:(g)amma(?![a-zA-Z])|(G)amma(?![a-zA-Z])(?!\s*(?:\\left\s*)?[({]))(\s*[_^])?",
        lambda found: (r"\tilde{%s}%s" if found[3] else r"{\tilde{%s}%s}") % (found[1] or found[2], found[3] or ""),
    ),
    ("an E with an index is a name, and not Euler's number", r"(?<![a-zA-Z\\])[eE]\s*(?=_)", r"\\tilde{e}"),
    (
        "T is an exponent where there is no matrix",
        r"(?<=[\da-zA-Z}])(?<!matrix\})\^(?:T(?![a-zA-Z])|\{\s*T\s*\})",
        "^{t}",
    ),
    (
        "I with an index is a name, and math-verify reads letters without their case",
        r"\\[a-zA-Z]+|I\s*(?=_)",
        lambda found: found[0] if found[0].startswith("\\") else "i",
    ),
    (
        "i is the imaginary unit unless it is an index",
        r"^(?!.*(?:\\sum|\\prod|_\{?i|[jk](?![a-zA-Z]))).*$",
        # In braces, because math-verify drops the exponent of a bare I.
        lambda found: _UNIT.sub("{I}", found[0]),
    ),
    ("currencies are units", r"\\?[€£¥₹¢]|\\(?:euro|pounds)(?![a-zA-Z])|(?<=\d)\s*(?:USD|EUR|GBP|INR|RMB)$", ""),
    (
        "a number and its unit may be in one text",
        rf"\\(?:text|mbox)\s*\{{\s*({_NUMBER})\s+([a-zA-Z][a-zA-Z .]*)\}}",
        r"\1\\text{ \2}",
    ),
    (
        "3 million is a product",
        rf"(?<=[\d}}])\s*{_TEXT}\s*{_SCALE}\s*(?P<unit>[^{{}}]*)\}}",
        _scaled,
    ),
    ("3 million is a product", rf"(?<=[\d}}])\s+{_SCALE}(?P<unit>)", _scaled),
    ("Chinese characters behind a number are its unit, unless they change it", rf"(?<=[\d}}])\s*{_CHINESE}+\s*$", ""),
    ("words behind a number are its unit", r"(?<=[\d}])( +)([a-zA-Z]{4,}(?: [a-zA-Z]+)*)$", _in_text),
    (
        "units have powers",
        r"(?<=[\d}])\s*(?:[cdkm]m|(?<= )(?:m|in|ft|yd|mi|inches|feet|meters|units))\s*\^\s*\{?[23]\}?\s*$",
        "",
    ),
    (
        "a rate is a unit",
        rf"(?<=[\d}}]){_GAP}+(?:[ck]?m|mi|ft|miles|feet|meters)\s*(?:/|per )\s*(?:h|hr|hour|min|minute|s|sec|second)"
        r"(?:\s*\^\s*\{?2\}?)?\s*$",
        "",
    ),
    (
        "a fraction of units is a unit",
        rf"(?<=[\d}}]){_GAP}*\\[dt]?frac\s*\{{{_TEXT}[a-zA-Z]+\}}\}}\s*\{{{_TEXT}[a-zA-Z]+\}}(?:\^\{{?\d\}}?)?\}}\s*$",
        "",
    ),
    ("a label in words is not mathematics", rf"^\s*{_TEXT}[^{{}}]*?(?:\}}\s*[=:]|(?:[=:]|\bis)\s*\}})", ""),
    ("residues with different moduli differ", _MODULUS, r"+\\tilde{mod}_{\2}"),
    ("an element of a set is that set", r"^\s*[a-zA-Z]\s*\\in(?![a-zA-Z])\s*", ""),
    ("a result begins with its sign", r"^\s*(?:=|\\(?:approx|Rightarrow|implies|therefore)(?![a-zA-Z])|:)\s*", ""),
    ("6 = x is x = 6", rf"^\s*(-?{_NUMBER})\s*=\s*([a-zA-Z])\s*$", r"\2=\1"),
    ("a sentence ends with its point", r"(?:(?<![.\\])(?<!\\right)(?<!\\left)[.,;:]|\\+)\s*$", ""),
    (
        "math-verify reads no plus-minus sign inside of a group, or in a list of equations",
        r"^(?!.*(?:\\[{m]|[(\[{][^()\[\]{}]*,)).*\\pm.*$",
        lambda found: ",".join(_both_signs(item) for item in _SEPARATOR.split(found[0])),
    ),
    (
        "numbers in a list have units too",
        rf"(?<=[\w}})]){_GAP}*{_TEXT}[^{{}}]*[a-zA-Z][^{{}}]*\}}(?:\^\{{?\d\}}?)?(?=\s*(?:,|\)|\\text\s*\{{\s*(?:and|or)\s*\}}))",
        "",
    ),
    ("a group around the whole answer is not a set", r"^\s*\{([^{},;]*)\}\s*$", r"\1"),
)
"""Reason of a rule, its pattern, and the replacement of a match."""
_RULES = [(re.compile(pattern), replacement) for _reason, pattern, replacement in _TABLE]

_EITHER = re.compile(r"(?<![\w.\\}^])(\d+)[eE]([+-]\d)(?![\w.{^(])")
_GROUP = re.compile(r"[({\[](?!\s*(?:and|or)\s*\})[^(){}\[\]]*[)}\]]")
_LISTED = re.compile(r"[(){}\[\],;]|\s(?:and|or)\s")
"""An open bracket, or what separates the items of a list."""
_LETTER = re.compile(
    rf"{_TEXT}[^{{}}]*\}}|\\(?:[cdt]?frac|sqrt(?=\s*[\[{{\d])|pi|cdot|times|left|right)(?![a-zA-Z])|(\\[a-zA-Z]+|[a-zA-Z])"
)
"""Text, a command that numbers have too, or a letter or another command as a group."""
_UPRIGHT = re.compile(rf"{_TEXT}[\s~]*([a-zA-Z])\}}")
_RELATION = re.compile(r"[=<>]|\\(?:le|ge|approx)(?![a-zA-Z])")
_LAST_LETTERS = re.compile(r"(?<=[\d}\s])(?:(?P<variable>[cdot]|ab|bc|rs|(?<!1)st)|(?P<either>[ghlms])|[a-z]{2,})\s*$")
"""Letters at the end which math-verify takes for a unit; those of ``either`` are units as often as variables."""


def letters(text: str) -> frozenset[str]:
    """Return the letters and commands of an answer outside of texts, without a unit behind a number, as in 25 m."""
    found = _LAST_LETTERS.search(text)
    if found and not found["variable"] and (not found["either"] or re.search(r"[\d}]\s+$", text[: found.start()])):
        text = text[: found.start()]
    return frozenset(letter[1] for letter in _LETTER.finditer(text) if letter[1])


def _has_last_variable(text: str, variables: frozenset[str]) -> bool:
    """Return True if the letters at the end of a text are variables: others are beside them, or in the gold answer."""
    if (found := _LAST_LETTERS.search(text)) is None:
        return False
    value = _RELATION.split(text[: found.start()])[-1]
    return bool(found["variable"] or (found["either"] and letters(value))) or variables.issuperset(found[0].strip())


def readings(text: str, with_bases: bool = False, variables: frozenset[str] = frozenset()) -> tuple[str, ...]:
    r"""Return the texts that math-verify may read: more than one for 2e-1, and for ``\frac{4}{3} \approx 1.33``.

    Args:
        text: the content of a box.
        with_bases: whether the base is part of a number, as in 2516_8; else math-verify ignores the base.
        variables: letters that are variables, and no units.
    """
    if _PLAIN.fullmatch(text):
        return (text,)
    text = text.translate(_CHARACTERS)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _UPRIGHT.sub(lambda found: f" {found[1]} " if found[1] in variables else found[0], text)
    text = " ".join(text.split())
    if _has_last_variable(text, variables):
        text += r"\,"  # math-verify looks for a unit only at the very end.
    if with_bases:
        text = _BASE.sub(lambda found: f"N_{{{found['digits'].lstrip('0')}b{found['base'] or found['short']}}}", text)
    return tuple(dict.fromkeys((text, _EITHER.sub(_exponent, text), text.replace(r"\approx", "="))))


def last_side(text: str) -> str:
    """Return the text behind the last equals sign; empty if there is none, or if the text is a list."""
    left, _, right = text.rpartition("=")
    while (outside := _GROUP.sub("", left)) != left:
        left = outside
    return "" if _LISTED.search(left) else right


_SECOND_NUMBER = re.compile(
    rf"\d(?:\}}|{_GAP})*{_TEXT}(?!\s*(?:[eEi]|,?\s*(?:and|or)?\s*,?)\s*\}})(?=[^{{}}a-zA-Z]*[a-zA-Z])[^{{}}]*\}}"
    rf"{_GAP}*(?:\d|\\(?:[cdt]?frac|sqrt|pi)(?![a-zA-Z]))"
)
_NUMBER_IN_TEXT = re.compile(
    rf"\d(?:\}}|{_GAP})*{_TEXT}(?=[^{{}}]*\}})(?![^{{}}]*\b(?:base|mod)\b)[^{{}}()a-zA-Z]*+[a-zA-Z][^{{}}()]*?\s-?\d"
)
_LIST_IN_TEXT = re.compile(rf"(?<=[\d}}])({_GAP}*{_TEXT}\s*\(?(?:and|or)\s+)(-?{_NUMBER})\s*([^{{}}]*)\}}")
_OPERATION = re.compile(
    rf"(?:{_TEXT}|[\di}}]){_GAP}*(?:(?:squared|cubed|doubled|tripled|halved|factorial|if|when)\b|\(?mod\b"
    r"|(?:plus|minus|divided|multiplied|to the(?! near)|and|or)\s+(?:a\b|[a-zA-Z]{3}))"
)
_SEQUENCE = re.compile(
    rf"(?!\d[\d.]*(?:\s\d{{3}})+(?:\.\d+)?\s*$)[\[\s]*{_NUMBER}(?:(?=\[*[\]\s])[\[\]\s]+{_NUMBER})+[\]\s]*"
)
"""Numbers with spaces between them, but not 10 000."""


def is_compound(text: str) -> bool:
    """Return True for a number with words that are no unit, such as 10 feet 6 inches, and for numbers as in 1 2 3.

    math-verify would take the words and all behind them for the unit of the first number, and may multiply the numbers.
    """
    patterns = (_SECOND_NUMBER, _NUMBER_IN_TEXT, _OPERATION)
    return _SEQUENCE.fullmatch(text) is not None or any(pattern.search(text) for pattern in patterns)


def split_list_in_text(text: str) -> str:
    r"""Move the last number of a list out of its text: ``5\text{ and 6}`` becomes ``5\text{ and }6``."""
    return _LIST_IN_TEXT.sub(
        lambda found: rf"{found[1]}}}{found[2]}" + (rf"\text{{ {found[3]}}}" if found[3] else ""), text
    )


_STYLED = re.compile(rf"{_TEXT}([^{{}}]*)\}}")
# The value begins as a number or a word, so that (A, B), (A)(B), A: 12, B: 5 and (A) and (C) are no choices.
_CHOICE = re.compile(
    rf"\s*(?:\((?P<round>[A-J])\)|(?P<marked>[A-J])[).:]|(?P<bare>[A-J])(?=\s*$)){_GAP}*"
    r"(?P<value>(?!.*(?:\([A-J]\)|[A-J][).:]))"
    rf"(?:-?(?:[\d.]|\\?\$|\\(?:[cdt]?frac|sqrt|pi)(?![a-zA-Z]))|{_TEXT}\s*(?!(?:and|or)\b)[a-zA-Z]|(?!(?:and|or)\b)[a-z]|[A-Z][a-z]).*)?"
)


def choice(text: str) -> tuple[str, str] | None:
    r"""Return the letter and the value of a choice, as C and 12 for ``\textbf{(C)}\ 12``; None for other answers.

    The value is empty where there is only a letter.
    """
    plain = text.strip(" $")
    if styled := _STYLED.match(plain):
        plain = f"{styled[1]} {plain[styled.end() :]}"
    found = _CHOICE.fullmatch(plain.strip())
    if found is None:
        return None
    return found["round"] or found["marked"] or found["bare"], found["value"] or ""


def has_base(text: str) -> bool:
    """Return True if a number in the text has a base."""
    return "_" in text and _BASE.search(text) is not None


def without_modulus(text: str) -> str:
    """Return an answer such as 3 (mod 7) without its modulus."""
    return re.sub(_MODULUS, "", text)
