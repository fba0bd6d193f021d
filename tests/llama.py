"""A random Llama of two layers with a byte tokenizer, as a folder; it accepts any text."""

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BEGIN, END, TURN, TURN_END = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
SPECIAL = [BEGIN, END, TURN, TURN_END]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(eos: str = END, adds: str = "$A", template: str | None = None) -> PreTrainedTokenizerFast:
    """A token per byte, with an end of a text of ``SPECIAL``; it adds tokens to a text as in ``<s> $A``."""
    texts = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={text: place for place, text in enumerate(texts)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(one, special=True) for one in SPECIAL])
    made.post_processor = processors.TemplateProcessing(single=adds, special_tokens=[(BEGIN, 0), (END, 1)])
    found = PreTrainedTokenizerFast(tokenizer_object=made, bos_token=BEGIN, eos_token=eos, pad_token=END)
    found.chat_template = template
    return found


def llama(folder: Path, tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    """Writes the model, whose generation settings name ``</s>``, and a tokenizer to a folder; returns it."""
    torch.manual_seed(0)
    sizes = {"vocab_size": len(SPECIAL) + 256, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, **heads, max_position_embeddings=256, bos_token_id=0, eos_token_id=1)
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1)
    model.save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return folder
