import random

from loadgen.known import answers
from loadgen.quality import score
from loadgen.sandbox import run
from loadgen.workload import builtin


def test_what_is_known_passes_every_check():
    known = answers(random.Random(1))
    for prompt in builtin(languages=["zh", "en"]):
        if prompt.kind == "long":
            assert prompt.text not in known
        else:
            assert score(prompt, known[prompt.text], "stop", run if prompt.language == "en" else None).passed, prompt.id
