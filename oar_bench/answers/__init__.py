"""Finding the answer in a response and deciding whether it is right. Strings in, verdicts out.

>>> grade("3 + 4 = 7 ; #### 7", "7", answer_type="exact").status
'correct'
>>> extract_answer("so 1 + 1 = 2 ; #### 2 0").text
'2 0'
"""

from __future__ import annotations

from oar_bench.answers.extract import Extraction, extract_answer
from oar_bench.answers.grader import Grade, Grader, Status, grade

__all__ = ["Extraction", "Grade", "Grader", "Status", "extract_answer", "grade"]
