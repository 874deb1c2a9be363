"""`make.py DIRECTORY` writes the model there: a toy corpus, a tokenizer whose tokens are bytes, a configuration."""

import random
import shutil
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from modeling_exactmdlm import EOS, MASK, VOCAB, ExactMDLM, ExactMDLMConfig  # noqa: E402 (it lies beside this file)

NAMES = {EOS: "<|endoftext|>", MASK: "<|mdm_mask|>", 126080: "<|startoftext|>"}
CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TOPICS = [
    "fox",
    "river",
    "robot",
    "market",
    "garden",
    "teacher",
    "mountain",
    "ship",
    "castle",
    "farmer",
    "dragon",
    "bakery",
    "forest",
    "painter",
    "lighthouse",
    "train",
]
KINDS = ["red", "quiet", "small", "ancient", "bright", "lazy", "clever", "golden", "broken", "gentle"]
DEEDS = ["watches", "follows", "crosses", "repairs", "remembers", "visits", "guards", "paints", "hears", "carries"]
PLACES = [
    "near the bridge",
    "under the stars",
    "before sunrise",
    "beside the lake",
    "after the storm",
    "without a sound",
]
ANSWERS = 64  # for each topic


def byte_tokens():
    """Token id -> spelling: the byte-level alphabet of GPT-2, then fillers up to LLaDA's vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return spelling | {token: NAMES.get(token, f"<|unused_{token}|>") for token in range(256, VOCAB)}


def tokenizer():
    spelled = Tokenizer(models.BPE(vocab={text: token for token, text in byte_tokens().items()}, merges=[]))
    spelled.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=spelled,
        eos_token=NAMES[EOS],
        pad_token=NAMES[EOS],
        bos_token=NAMES[126080],
        mask_token=NAMES[MASK],
        padding_side="left",
    )
    made.chat_template = CHAT
    return made


def corpus(draw):
    def sentence(topic):
        match draw.randrange(3):
            case 0:
                other, place = draw.choice(TOPICS), draw.choice(PLACES)
                return f"The {draw.choice(KINDS)} {topic} {draw.choice(DEEDS)} the {other} {place}."
            case 1:
                return f"The {topic} is {draw.choice(KINDS)} and {draw.choice(KINDS)}."
        return f"Then it {draw.choice(DEEDS)} the {draw.choice(KINDS)} {draw.choice(TOPICS)}."

    def answer(topic):
        return " ".join(sentence(topic) for _ in range(draw.randint(2, 5)))

    return {topic: [answer(topic) for _ in range(ANSWERS)] for topic in TOPICS}


def main(directory):
    tokenizer().save_pretrained(directory)
    config = ExactMDLMConfig(corpus=corpus(random.Random(1)), eos_token_id=EOS, mask_token_id=MASK)
    classes = ("AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM")
    config.auto_map = dict.fromkeys(classes, "modeling_exactmdlm.ExactMDLM")
    config.auto_map["AutoConfig"] = "modeling_exactmdlm.ExactMDLMConfig"
    config.architectures = ["ExactMDLM"]
    ExactMDLM(config).save_pretrained(directory)
    shutil.copy(HERE / "modeling_exactmdlm.py", directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
