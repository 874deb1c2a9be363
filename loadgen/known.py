"""What a good simulated model says to the built-in prompts, so that checks have something to find right.

A simulated model then gets worse by exactly the noise that its settings bring (fewer denoising steps, for one),
and a sweep shows quality beside speed as it would with a real one.
"""

from __future__ import annotations

from .prose import Source, answer
from .workload import builtin

_LENGTH = 160  # tokens that are said after a fact, as chatty models do


def answers(source: Source) -> dict[str, str]:
    """Prompt -> an answer that passes its check. Long texts are left to the model: there is nothing to know."""
    found = {}
    for prompt in builtin():
        if prompt.answers:
            found[prompt.text] = f"{prompt.answers[0]}. {answer(prompt.text, _LENGTH, source)}"
        elif prompt.solution is not None:
            found[prompt.text] = prompt.solution
    return found
