"""A masked-diffusion model that needs no training, shaped as LLaDA outside, so that servers written for that serve it.

It is the exact Bayes denoiser over a small corpus: for each masked position of the answer it returns
log p(x_i | visible positions) under the empirical distribution of the corpus' answers on the prompt's topic, which is
the function that a masked-diffusion model is trained towards. As with a real one, positions that are settled in the
same step are drawn from marginals: few steps mix sentences up, many steps give text of the corpus. A token is a byte.
"""

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput

EOS, MASK, VOCAB = 126081, 126336, 126464  # LLaDA's
END = 256  # stands for EOS inside
ANSWER = list(b"assistant: ")


class ExactMDLMConfig(PretrainedConfig):
    model_type = "exactmdlm"

    def __init__(self, vocab_size=VOCAB, corpus=None, **kwargs):
        self.vocab_size = vocab_size
        self.corpus = corpus or {}
        self.hidden_size = self.num_hidden_layers = self.num_attention_heads = 1
        self.max_position_embeddings = 4096
        super().__init__(**kwargs)


class ExactMDLM(PreTrainedModel):
    config_class = ExactMDLMConfig

    def __init__(self, config):
        super().__init__(config)
        self.nothing = torch.nn.Parameter(torch.zeros(1))  # servers ask a model's parameters for its device
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, input_ids, attention_mask=None, position_ids=None, **kwargs):
        logits = torch.full((*input_ids.shape, self.config.vocab_size), -1e4, dtype=self.nothing.dtype)
        for row in range(input_ids.shape[0]):
            length = input_ids.shape[1] if attention_mask is None else int(attention_mask[row].nonzero().max()) + 1
            self._denoise(input_ids[row, :length], logits[row, :length])
        return MaskedLMOutput(logits=logits)

    def _denoise(self, ids, logits):
        start = _answer_start(ids.tolist())
        size = len(ids) - start if start else 0
        if size <= 0:
            return
        answers = _rows(self._answers(ids[:start].tolist()), size)
        seen = torch.tensor([END if token == EOS else token for token in ids[start:].tolist()])
        visible = seen != MASK
        likely = torch.softmax(-8.0 * (answers[:, visible] != seen[visible]).sum(1).float(), 0)
        mass = torch.full((size, END + 1), 1e-6).scatter_add_(1, answers.T, likely.expand(size, -1).contiguous())
        log_p = (mass / mass.sum(1, keepdim=True)).log()
        logits[start:, :END] = log_p[:, :END].to(logits.dtype)
        logits[start:, EOS] = log_p[:, END].to(logits.dtype)

    def _answers(self, prompt):
        """The corpus' answers on the topic that the last question names."""
        text = bytes(token for token in prompt if token < END).decode("utf-8", "replace").lower()
        question = text[text.rfind("user:") :]
        topics = self.config.corpus
        return topics[next((topic for topic in topics if topic in question), next(iter(topics)))]


def _answer_start(ids):
    for start in range(len(ids) - len(ANSWER), -1, -1):
        if ids[start : start + len(ANSWER)] == ANSWER:
            return start + len(ANSWER)
    return None


def _rows(answers, size):
    rows = torch.full((len(answers), size), END, dtype=torch.long)
    for row, answer in enumerate(answers):
        tokens = torch.tensor(list(answer.encode()[:size]))
        rows[row, : len(tokens)] = tokens
    return rows
