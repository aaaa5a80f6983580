r"""Mathematical answers: finding them in a response and comparing them with a gold.

Importing this package imports neither sympy nor math-verify; they run in worker processes only.

>>> grade("Thus $x = \\boxed{\\frac{3}{2}}$.", "1.5").correct
True
>>> extract_answer("The answer is 12.").text
'12'
>>> equivalent("2\\sqrt{2}", "\\sqrt{8}")
True
"""

from oar_bench.answers.api import equivalent, grade
from oar_bench.answers.extract import Extraction, extract_answer
from oar_bench.answers.grader import Grader
from oar_bench.answers.grades import Grade, Status

__all__ = ["Extraction", "Grade", "Grader", "Status", "equivalent", "extract_answer", "grade"]
