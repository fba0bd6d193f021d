r"""Verdicts on the forms that answers take, and on pairs of other people's tests.

The table has the forms that the pairs lack. It says what happens, not what would be best. Where the two differ, the
comment says so.
"""

import logging

import math_verify
from hypothesis import given
from hypothesis import strategies as st

from tasks.verify.judge import judge
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome
from tests.verify.helpers import boxed, settings
from tools.pairs import expected, judge_pairs, pairs

C, W, N, G = "correct", "wrong", "no_answer", "gold_unparsable"

FORMS: list[tuple[str, dict[str, list[str]]]] = [
    # numbers; no number is picked out of a text, and letters without a meaning are a product
    ("42", {C: ["42", "42.0", "042", "+42", "42."], N: ["", "   ", "?", r"\frac{1}"]}),
    ("42", {W: ["43", "forty-two", "I say 42", r"\text{I say } 42", r"\frac{1}{0}"]}),
    ("-7", {C: ["-7", "\u22127"], W: ["7"]}),  # also a Unicode minus
    # fractions and decimals, of which six decimals are compared
    ("1/3", {C: ["0.333333"], W: ["0.33"]}),
    # decimals that repeat
    (r"0.\overline{3}", {C: ["1/3", r".\overline{3}", r"0.\bar 3", r"0.\overline{33}", r"0.\dot3"], W: ["0.3", "3"]}),
    ("1/6", {C: [r"0.1\overline{6}", r"0.16\overline{6}", r".1\overline{6}"], W: [r"0.\overline{16}", "0.6"]}),
    (r"\frac{\pi}{2}", {C: [r"\frac\pi2", r"\frac\pi{2}"], W: [r"\frac\pi3"]}),
    ("1", {C: [r"0.\overline{9}", "\uff11"]}),
    (r"\overline{AB}", {C: [r"\overline{AB}"]}),
    # spaces between thousands
    (r"10\;000", {C: ["10000", r"10\,000", "10{}000"], W: ["0"]}),
    ("3.141592", {C: [r"3.141\,592"], W: ["3.141"]}),
    (r"12~345.5", {C: ["12345.5", "x=12,345.5"]}),
    (r"1250\pi", {C: [r"1,250\pi"], W: [r"250\pi", r"\{1,250\pi\}"]}),
    # powers of ten, and numbers that six decimals would make 0
    (r"4.5\times10^{33}", {C: ["4.5E+33", "4.5e33", "4.5e33."]}),
    ("0.00001", {C: ["1e-05"], W: ["e-5"]}),
    ("1000", {C: ["1e3"]}),
    ("2e - 1", {C: ["2e-1"]}),  # both readings count
    (r"1.6\times 10^{-19}", {C: ["1.6 x 10^-19"], W: [r"3.2\times 10^{-19}"]}),
    (r"\frac{1}{3}\times 10^{-8}", {C: ["3.33333e-9"]}),
    (r"(1\times 10^{-8}, 2)", {W: [r"(3\times 10^{-8}, 2)"]}),
    (r"2.5\times 10^{x}", {C: [r"2.5 \cdot 10^x"], W: [r"2.5\times 10^{-x}"]}),
    (r"1-\frac{1}{2^{2023}}", {C: [r"\frac{2^{2023}-1}{2^{2023}}"], W: [r"1-\frac{1}{2^{2022}}"]}),
    (r"1-\frac{1}{2023!}, 2", {C: [r"2, 1-\frac{1}{2023!}"], W: [r"1-\frac{1}{2024!}, 2"]}),
    (r"10^{-9}x", {W: [r"2\times 10^{-9}x"]}),
    ("0", {C: ["x+y=0"], W: ["1e-9", "2x-3y+5=0", r"1 \approx\begin{matrix}1&2\end{matrix}\approx 0"]}),
    # bases; without one the problem says it
    ("2516_8", {C: [r"(2516)_{8}", "2516"], W: ["2516_7"]}),
    (r"\{101_2, 7\}", {W: [r"\{101_3, 7\}"]}),
    # characters, styles
    (r"\sqrt{12}", {C: ["\u221a12", r"\sqrt12"], W: [r"\sqrt{1}2"]}),
    (r"\sqrt{1 \over 2}", {C: [r"\sqrt{1/2}", "sqrt(2)/2", r"\sqrt(1/2)", r"\sqrt[2]2/2"], W: [r"\frac{1}{2}"]}),
    (r"2^{1\over3}", {C: [r"2^{\frac{1}{3}}"], W: [r"\frac{2}{3}"]}),
    (r"\frac{7}{2}+x^2", {C: ["3\u00bd+x\u00b2"]}),
    ("10", {C: [r"\binom52", r"\tbinom{5}{2}", r"{5\choose2}", r"2\ast5", r"10^\circ F"]}),
    ("5", {C: [r"\color{red}5", r"5\hspace{1cm}", r"5{\rm cm}", r"\Large 5", r"5\textsf{ cm}", r"\implies 5", "5=x"]}),
    (r"\frac{x+1}{2}", {C: [r"{x+1\over2}", r"x+1\over2", r"\nicefrac{x+1}{2}"]}),
    ("(0,1)", {C: [r"x>0\land x<1", "(0.,1.)", r"\Bigl(0, 1\Bigr)"]}),
    (r"(\ln 2+\pi,\infty)", {C: ["(ln(2)+pi, infty)"]}),
    ("1", {C: ["⅓+⅔", "¼+¾", "⅕+⅘", "⅖+⅗", "⅙+⅚", "⅛+⅞", "⅜+⅝", "½*2", "⅐*7", "⅑*9", "⅒*10"]}),
    (r"\sqrt[3]{x_1}", {C: ["\u221b(x\u2081)"]}),
    (r"\frac{1}{e}", {C: [r"\frac{1}{\mathrm{e}}"]}),
    ("5", {C: [r"{\bf 5}", r"\underline{5}", r"\textcolor{red}{5}", r"\frac{\boxed{10}}{2}"]}),
    ("-1, 9", {C: [r"\mathbf{-1, 9}", r"\boxed{-1, 9}"]}),
    ("9.8", {C: ["9.8 m/s^2", r"9.8\,km/h", "9.8 miles per hour"], W: ["9.8x/s"]}),
    (r"5\,\frac{\text{m}}{\text{s}^2}", {C: ["5", r"5\frac{\mathrm{m}}{\mathrm{s}^{2}}"], W: [r"5\frac{a}{b}"]}),
    (r"16\frac{2}{3}\%", {C: [r"\frac{50}{3}\%", r"\frac16", "16.666667%"], W: [r"16\frac13\%", r"\frac16\%"]}),
    (r"x=0, x=\frac{1\pm\sqrt5}{2}", {C: [r"0, \frac{1\pm\sqrt5}{2}."], W: [r"\frac{1\pm\sqrt5}{2}"]}),
    (r"\frac{1\pm\sqrt5}{2}", {C: [r"\frac{1-\sqrt5}{2}, \frac{1+\sqrt5}{2}"], W: [r"\frac{1+\sqrt5}{2}"]}),
    # the imaginary unit, also at the start of a group; its exponent counts
    ("3+2i", {W: ["3+2i^2"]}),
    ("3x", {C: [r"\sum_{i=1}^{3} x", "(2+i)(2-i)x-2x"], W: [r"\sum_{i=1}^{4} x"]}),  # x is real beside an i too
    ("RI_1", {C: ["I_1R", "RI_1"], W: ["RI_2", "RI"]}),
    ("E_1+I_1", {C: ["I_1+E_1"], W: ["E_1+I_2", "E_2+I_1", "E_1+I"]}),
    (r"\frac{I_1}{2}", {C: [r"\frac{I_1}{2}", "I_1/2"], W: [r"\frac{I_2}{2}", "I_1"]}),
    ("i^2 R", {C: ["-R", "I^2R"], W: ["IR"]}),
    (r"\frac{1}{2}+\frac{i\sqrt{3}}{2}", {C: [r"\frac{1}{2} + \frac{\sqrt{3}}{2}i", r"e^{i\pi/3}"]}),
    ("i, -i", {C: [r"\{i,-i\}", r"\sqrt{-1}, \frac{1}{i}"], W: [r"\hat{i}, -\hat{i}"]}),
    # expressions that are not evaluated, which can be the problem itself
    ("30", {C: ["(2)(15)", "A = 2(3)(5) = 30", r"f(3)=6\left(5\right)"], W: ["23(7)"]}),
    ("69", {C: [r"57+3\cdot 4"]}),
    ("385", {C: [r"\sum_{k=1}^{10} k^2"]}),
    # sets
    (r"\emptyset", {C: [r"\varnothing"]}),
    (r"\{x|x\geq0\}", {C: [r"[0,\infty)", r"\left\{x\in\mathbb{R} \mid x\geq0\right\}", "x>=0"], W: [r"\{x : x>0\}"]}),
    (r"\mathbb{R}\setminus\{0\}", {C: [r"\mathbb{R} \backslash \{0\}", r"\mathbb{R}-\{0\}"], W: [r"\mathbb{R}-\{1\}"]}),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", {C: [r"\begin{pmatrix}1\\[2pt]2\end{pmatrix}"]}),
    (
        r"2\mathbf{i}-\mathbf{j}",
        {C: [r"2\mathbf i-\mathbf j", r"2\text{i}-\text{j}"], W: [r"2\mathbf{i}+\mathbf{j}", "2"]},
    ),
    # intervals and points
    (r"(-2,2)", {W: ["x^2<4"]}),  # not solved
    (r"(-\infty,-1)\cup(1,\infty)", {C: [r"x<-1 \text{ or } x>1", r"x<-1\lor x>1", r"]-\infty,-1[\cup]1,\infty["]}),
    ("(0,1]", {C: ["]0,1]", r"x>0 \text{ and } x\le1"], W: ["[0,1[", "x>0, x<1", r"x>0, x\ge1"]}),
    (
        "(1,2)",
        {C: ["(1,2)", r"\lbrace1,2\rbrace", r"\{1,2\}", "y=2, x=1", r"\langle 1,2\rangle"], W: ["(2,1)", "y=1, x=2"]},
    ),  # an open interval or a point, as the other side needs
    # units are taken off and not compared
    (r"5\text{ cm}", {C: [r"5\text{ cm}", "5", r"5\text{ m}"], W: [r"6\text{ cm}"]}),
    ("10", {C: [r"10~\text{cm}", r"\text{10 apples}", "10个"], W: [r"10\text{x}"], N: ["10万"]}),
    # a letter behind a number is a variable in the gold answer; in the answer too if the gold answer has it
    ("6m", {C: ["3m+3m", r"6\text{ m}"], W: ["6"]}),
    ("25 m", {C: ["25", "25m", r"25\text{ m}"], W: ["26"]}),
    ("4t", {C: ["4 t", r"\frac{8t}{2}"], W: ["4"]}),
    (r"\omega^2 h", {C: [r"h\omega^2"], W: [r"\omega^2"]}),
    (r"2\pi\sqrt m", {C: [r"2\sqrt{m}\pi"], W: [r"2\pi m"]}),
    ("a, b, c", {C: ["c, b, a"], W: ["a, b"]}),
    ("2ab", {C: ["2ba"], W: ["2"]}),
    ("90", {C: ["90\u00b0"], W: [r"\frac{\pi}{2}"]}),  # a problem says which it wants
    (r"\cos 58^\circ", {C: [r"\sin 32^{\circ}", r"-\cos(122\degree)"], W: [r"\cos 58", r"\sin 58^\circ"]}),
    # without the sign of per cent on both sides, 12.5% is 12.5 and 0.125
    ("12.5", {C: [r"12.5\%", r"\text{12.50\%}", r"\frac{1}{8}=0.125=12.5\%"], W: [r"1.25\%", r"0.12=12.5\%"]}),
    (r"12.5\%", {C: ["12.5", r"\frac{25}{2}", "0.125", r"12.5\text{ percent}"], W: ["1.25", r"0.125\%"]}),
    ("12.5, 30", {C: [r"30\%, 12.5\%"], W: [r"12.5\%, 3\%"]}),
    # million is a factor; a number, words and another number are one quantity, which is compared as a text
    ("3000000", {C: [r"3 \text{ million}", r"\$3 million", r"\text{3 million dollars}"], W: ["3 billion"]}),
    ("3000000000000", {C: ["3 trillion", r"\text{\$3,000,000,000,000}", "3000000000000 USD"]}),
    (r"1.5\text{ million}", {C: ["1500000"], W: ["1.5"]}),
    ("300000000", {C: ["3 hundred million"]}),
    ("36", {C: ["3 dozen eggs"]}),
    # words behind a number which change it are no unit; a label and units of a list have no meaning
    ("6", {W: [r"6\text{ squared}", "6 factorial", r"6\text{ and a half}", r"6\text{ times }\sqrt2", r"6\mod 7"]}),
    ("6", {C: [r"\text{Area} = 6\text{ cm}^2", r"\text{The answer is }6", r"6\text{ hundredths}"], W: ["6^T"]}),
    (r"6\text{ cm}, 8\text{ cm}", {C: ["6, 8", r"6 \text{ and } 8"], W: ["6"]}),
    (r"x\equiv 3\pmod 7", {C: [r"3 \pmod{7}", "3"], W: [r"3\pmod 8", "4"]}),
    ("10", {W: [r"10 \text{ feet } 6 \text{ inches}", r"10\,\mathrm{ft}\,6\,\mathrm{in}"]}),
    # gamma is a letter, and Gamma a function
    (r"m(\gamma^2-1)\sin\theta", {C: [r"(\gamma^2-1)m\sin\theta"], W: [r"m(\gamma^2-3)\sin\theta"]}),
    (r"\frac{\alpha+\gamma_0}2", {C: [r"\frac{\gamma_0}{2}+\frac{\alpha}{2}"], W: [r"\frac{\alpha-\gamma_0}2"]}),
    ("24", {C: [r"\Gamma(5)", r"\Gamma\left(5\right)"]}),
    (r"\frac{\sqrt{\pi}}{2}", {C: [r"\frac{\sqrt\pi}{2}", r"\sqrt\frac{\pi}{4}"], W: [r"\frac1\pi"]}),
    (r"\frac1\pi", {C: [r"\frac{1}{\pi}"]}),
    ("111, \\! 111, \\! 111", {C: ["111111111"], W: ["111, \\! 111", r"111111112\approx111111111.0"]}),
    ("20 cm^{2}", {C: ["20 cm^{2}."]}),
    (r"\{x|-2\leq x < 1\}", {C: [r"\{x|-2\leq x < 1\}.", "[-2,1)$."]}),
    ("2:1:3", {C: ["2 : 1 : 3", "a:b:c=2:1:3"], W: ["2:3:1", r"\frac{2}{3}", "a:b:c=2:3:1"]}),
    (r"x:y:z=1:\sqrt{3}:2", {C: [r"1:\sqrt3:2"], W: [r"1:2:\sqrt3"]}),  # the order of a ratio counts
    # numbers with spaces between them are a text, as in the grids of reasoning-gym
    ("1 0 1\n0 1 0", {C: ["1 0 1\n0 1 0"], W: ["1 0 1\n1 1 0", "0"]}),
    ("[[1 0]\n [0 1]]", {C: ["[[1 0] [0 1]]"], W: ["[[0 1] [1 0]]"]}),
    ("6", {W: ["1 2 3"]}),
    (r"10 \text{ feet } 6 \text{ inches}", {C: [r"10\text{ feet }6\text{ inches}"], W: ["10", "126"]}),
    (r"2 \text{ for } 0 < x", {C: [r"2\text{ for } 0 < x"], W: ["2"]}),
    # equations, of which the last side counts; a false one is wrong, a rounded one is not false
    ("x=3", {C: ["x=3", "3"], W: ["y=3"]}),
    ("3", {C: ["x=3", "x = 1+2 = 3", "= 3"], W: [r"3 \text{ million}", "3 thousand", r"3\text{ dozen}"]}),
    ("6", {C: [r"\gcd(12,18)=6", r"1+\gcd(5,10)=6", "3!=6"], W: ["7 = 6", "x = 7 = 6", r"\gcd(3,6)=6", "x!=6"]}),
    ("1.33", {C: [r"x=\frac{4}{3}\approx1.33", r"x\approx1.33"], W: [r"\frac{5}{3}\approx1.33"]}),
    # the left side is a name that math-verify takes for a number, or that it cannot read
    (r"\frac{\sqrt3}{2}", {C: [r"e=\frac{c}{a}=\frac{\sqrt3}{2}", r"I=\frac{\sqrt3}{2}"], W: [r"e=\frac{\sqrt3}{3}"]}),
    (r"e=\frac12", {C: [r"e=\frac12", "0.5", r"e=\frac{2}{4}"], W: [r"e=\frac13", "e"]}),
    ("10", {C: [r"\int_0^1 f(x)dx=10", r"\max\{a,b\}=4+6=10", r"|A\cap B|=10", r"\det A=10", r"2\star3=10"]}),
    ("0.5", {C: [r"P(A\cap B)=\frac12", r"P(X\ge2)\approx0.5", r"P(X>2)=\frac24=50\%"], W: [r"P(X\ge1)=1"]}),
    (r"P(A\cap B)=\frac12", {C: ["0.5", r"P(A\cap B)=0.5"], W: [r"P(A\cap B)=\frac13"]}),
    ("0.5", {N: [r"P(A\cap B)=1, P(A\cup B)=0.5", r"P(A\cap B)=1 \text{ and } P(A\cup B)=0.5", r"P(A\cap B=0.5)"]}),
    (r"\pi", {C: ["\u03c0"], W: [r"x = \pi = 3.14", r"\pm\pi\text{ cm}", r"\pi\text{ if n is odd}"]}),
    ("3.14", {C: [r"x = \pi = 3.14"], W: [r"2 \approx x \approx 3.14", r"(2 \approx x \approx 3.14)"]}),
    (r"\sqrt3+\sqrt7", {C: [r"x=\sqrt3+\sqrt7=\sqrt{10+2\sqrt{21}}"], W: [r"\frac{4377802}{1000000}=\sqrt3+\sqrt7"]}),
    # no infinite expression equals a number, although sympy says so
    *(
        (gold, {W: [r"|\infty|", r"|-\infty| + 1", r"|\ln 0|", r"x = ||\infty||"]})
        for gold in ("3", "1.5", r"2\pi", r"\{e\}")
    ),
    (r"\begin{pmatrix}e\\\pi\end{pmatrix}", {W: [r"\begin{pmatrix}|\ln 0|\\|\infty|\end{pmatrix}"]}),
    (r"2\pi", {W: [r"|\infty + \sum_{k=1}^3 k|", r"|\int_0^1 \infty dx|"]}),
    (r"3\pi", {W: ["(-1)!", r"|\cot 0|", r"\sin(\ln 0)", r"\min(\ln 0, 5)"]}),
    (r"(e, 2\pi)", {W: [r"(|\infty|, |\infty|)"]}),
    (r"\infty", {C: [r"|\infty|", r"+\infty"], W: [r"-\infty"]}),
    (r"\frac{\pi}{2}", {C: [r"\arctan\infty", r"\frac{3}{\pi} \sum_{k=1}^{\infty} \frac{1}{k^2}"]}),
    # equations without a real solution, values of functions, and derivatives
    ("x^2-2x+5=0", {C: ["2x^2-4x+10=0"], W: ["x^2+4=0", r"\sqrt{x}=-1", "f(2)=3"]}),
    (r"2\sqrt3=3.46", {C: [r"3.46=2\sqrt3"], W: [r"2\sqrt3=3.47", "3.47=3.46"]}),
    ("f(2)=3", {C: ["3"], W: ["f(2)=4", "f(3)=3"]}),
    (r"m\frac{dv}{dt}+bv=f", {C: [r"bv+m\frac{dv}{dt}=f"], W: ["bv=f", r"m\frac{dv}{dx}+bv=f"]}),
    (r"-L\frac{dI}{dt}", {W: ["0", r"-L\frac{dq}{dt}"]}),
    ("y''-5y'+6y=0", {C: ["y''+6y=5y'", r"y^{\prime \prime}-5y^{\prime}+6y=0"], W: ["y''+y'=0"]}),
    ("f'(x)=2x", {C: ["2x", "f'(x)=x+x"], W: ["f(x)=2x", "f''(x)=2x", r"3x \approx 2x"]}),
    (r"y=c_1\cos 2x+c_2\sin 2x+x", {W: [r"y=c_1\cos 3x+c_2\sin 3x+x"]}),  # which is not solved for x
    (r"\cos(\pi)=-1, \sin(\pi)=0", {C: [r"\cos\pi=-1, \sin\pi=0"]}),
    (r"m+n-\gcd(m,n)", {C: [r"n+m-\operatorname{gcd}\left(n, m\right)"], W: ["m+n-1", "m+n"]}),
    ("1<x<2", {C: ["1<x<2", "(1,2)", "2>x>1"], W: ["1<x<2<y", r"(-\infty,\infty)", "2>y>1", r"2\ge x>1"]}),
    ("a>b=c", {C: ["a>b=c", "c=b<a"], W: ["a<b=c", "c>b=a"]}),
    ("1<x<2, 3<x<4", {C: ["4>x>3, 2>x>1"]}),
    (r"x \ne 3", {C: [r"3 \neq x"], W: [r"x \ne 4", "x > 3", "3"]}),
    # numbers inside of a text
    (r"10\text{ feet 6 inches}", {C: [r"10\text{ feet }6\text{ inches}"], W: ["10", r"10\text{ feet 7 inches}"]}),
    (r"2 \text{ hours and } 30 \text{ minutes}", {C: [r"2\text{ hours and 30 minutes}"], W: ["2"]}),
    (r"3\text{ out of 4}", {W: ["3", r"3\text{ out of 5}"]}),
    ("5, 6", {C: [r"5\text{ and 6}", r"x = 5\text{ or 6}"]}),
    (r"5\text{ and 6}", {C: ["6, 5"], W: ["5"]}),
    ("5", {C: [r"5\text{ m2}", r"5\text{ (since 2+3=5)}"], W: [r"5\text{ or 6}", r"5\text{ (or 6)}", r"5\text{ R 1}"]}),
    # powers of factorials, and integers that a letter runs over
    ("(n!)^2", {C: ["n!^2", "n!^{2}", "n! n!"], W: ["(n^2)!", "n!"]}),
    (r"\binom{2n}{n}", {C: [r"\frac{(2n)!}{n!^2}"], W: [r"\frac{(2n)!}{n!}"]}),
    ("((n+1)!)^2", {C: ["(n+1)!^2"]}),
    (
        r"\frac{\pi}{4}+k\pi, k\in\mathbb{Z}",
        {C: [r"k\pi+\frac{\pi}{4}", r"x = \frac{\pi}{4} + k\pi \quad (k \in \mathbb{Z})"]},
    ),
    (r"k\pi", {C: [r"k\pi, \text{ where } k \in \mathbb Z"], W: [r"2k\pi, k \in \mathbb{Z}"]}),
    ("x>0", {N: [r"x>0, x \in \mathbb{Z}"]}),
    (r"\mathbb{Z}", {C: [r"x \in \mathbb{Z}"], W: [r"x \in \mathbb{N}"]}),
    # letters and words, and products of variables
    (r"\text{east}", {C: ["East", r"\text{the east}", r"\(\text{East}\)"]}),
    ("Paris", {W: ["rapis"]}),
    ("No", {C: [r"\text{No.}"], W: ["on", "Yes"]}),
    ("xyz", {C: ["zyx"]}),
    ("mn", {C: ["nm"], W: [r"\operatorname{lcm}(m,n)", r"\gcd(m,n)"]}),
    ("abc", {C: ["cba"]}),
    # a capital is its small letter, unless both are there
    ("Ce^x", {C: ["ce^x"]}),
    (r"\pi(R^2-r^2)", {C: [r"\pi(R-r)(R+r)"], W: ["0", r"\pi(r^2-R^2)"]}),
    ("2r", {C: ["2R"], W: ["R+r"]}),
    (r"\frac{\Delta}{\delta}", {W: ["1"]}),
    ("red, blue", {C: [r"\text{blue and red}"]}),
    (r"\text{no solution}", {C: ["No solution.", r"\varnothing"], W: ["0", "no integer solution"]}),
    (r"(-\infty,\infty)", {C: [r"\text{All real numbers}", "\u211d"], W: [r"\text{all positive real numbers}", "R"]}),
    # choices: a letter, a value, or both
    ("C", {C: [r"\textbf{(C)}\ 12", r"\text{(C) 12}", "(C) 12", "C: 12", r"\textbf{(C)}\ x^2"], W: ["(D) 12", "12"]}),
    (r"\textbf{(C)}\ 12", {C: ["C", "(C)", r"\text{C}", "12", "(C) 12"], W: ["D", "13", "(D) 12", "(C) 13", "12C"]}),
    (r"$\mathrm{(E)}~2\sqrt{3}$", {C: [r"\sqrt{12}", "E"], W: ["A"]}),
    (r"\textbf{(B)}\ \text{Monday}", {C: ["B", "monday"], W: ["Tuesday"]}),
    ("I", {C: [r"\textbf{(I)}", "(I) 12 cm", "I: heat", "I)"], W: ["(J) 12 cm", "J. 12"]}),  # as in MMLU-Pro, to J
    ("12", {C: [r"\textbf{(C)}\ 12", r"\gcd(24,36)"], W: ["C"]}),
    ("(A, B)", {C: ["(A,B)"], W: ["A", "B"]}),
    (r"\{A, B\}", {W: [r"\text{(A)} \text{ and } \text{(C)}", "A"]}),
    ("C(5,2)", {C: ["C(5,2)"], W: ["C", "(5,2)"]}),
    ("A: 12, B: 5", {W: ["A", "12"]}),
    # words with numbers, and lists of letters, are equal as texts at least
    (r"\text{June 20}", {C: ["June 20"], W: ["June 21", "20"]}),
    (r"\text{A, C}", {C: ["A,C", r"\text{A,C}"], W: ["A"]}),
    ("7:45 p.m.", {C: [r"7:45 \text{ PM}", "7:45pm"], W: ["8", "7:46 p.m.", "7:45 a.m."]}),
    # dollars and boxes around an answer
    ("$16$", {C: ["16", r"\boxed{16}", "$16$"]}),
    # gold answers that are read first, and are none or have no value
    ("?", {G: ["42"]}),
    ("", {G: ["42"]}),
    (r"\frac{1}{0}", {G: ["42", "?"]}),
]
WHOLE = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(-20, 20)


@given(WHOLE, WHOLE | st.none())
def test_whole_numbers_are_compared_as_math_verify_compares_them(gold: int, other: int | None) -> None:
    answer = gold if other is None else other
    logging.disable(logging.CRITICAL)
    boxes = [math_verify.parse(rf"\boxed{{{number}}}", parsing_timeout=None) for number in (gold, answer)]
    same = math_verify.verify(*boxes, timeout_seconds=None)
    logging.disable(logging.NOTSET)
    assert judge(str(gold), str(answer)) is (Outcome.CORRECT if same else Outcome.WRONG)


def test_answers_in_many_notations():
    cases = [(gold, one, outcome) for gold, row in FORMS for outcome, some in row.items() for one in some]
    with Verifier(settings()) as verifier:
        verdicts = verifier.verify([(gold, boxed(answer)) for gold, answer, _ in cases])
    found = zip(cases, verdicts, strict=True)
    assert [(gold, one.extracted, str(one.outcome)) for (gold, _, _), one in found] == cases
    assert {(one.outcome, one.reward) for one in verdicts} == {(C, 1.0), (W, 0.0), (N, 0.0), (G, None)}


def test_pairs_of_other_projects():
    # One that is missed is as much a part of what the documentation says as one that is met.
    several = pairs()
    missed = [pair for pair, found in zip(several, judge_pairs(several), strict=True) if found != expected(pair)]
    assert missed == [pair for pair in several if "missed" in pair]
