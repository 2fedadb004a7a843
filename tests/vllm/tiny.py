"""
A Hugging Face causal LM small enough to serve on a CPU, with the tokenizer of the arithmetic task. Built here.
"""

import importlib
from pathlib import Path
from typing import Any

import torch

from stepscope_trainer import hugging_face
from stepscope_trainer.learner import Learner
from stepscope_trainer.model import ALPHABET
from stepscope_trainer.task import Arithmetic

WIDTH = 128
HEADS = 4
"""Of 32 dimensions each, the fewest that vLLM's attention on the CPU takes."""


def build(folder: Path, *, seed: int = 0, tied: bool = False, warm_up: int = 0) -> Path:
    """
    Save one in ``folder``, drawn from ``seed``, after ``warm_up`` steps of supervision. Random weights are large, so
    that different ones give different log-probs.
    """
    transformers: Any = importlib.import_module("transformers")
    _tokenizer(transformers).save_pretrained(folder)
    torch.manual_seed(seed)
    end = len(ALPHABET)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
        initializer_range=0.02 if warm_up else 0.2,
    )
    inner = transformers.LlamaForCausalLM(config)
    inner.save_pretrained(folder)
    if warm_up:
        task = Arithmetic(hugging_face.Tokenizer(str(folder)), seed=0)
        # Threads of its own that spin for each other are slow on a busy machine.
        torch.set_num_threads(1)
        Learner(hugging_face.HuggingFaceLM(inner), rate=1e-3, sum_over_ranks=lambda _: None).warm_up(
            task, steps=warm_up
        )
        inner.save_pretrained(folder)
    return folder


def _tokenizer(transformers: Any) -> Any:
    tokenizers: Any = importlib.import_module("tokenizers")
    vocabulary = {letter: number for number, letter in enumerate(ALPHABET)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({**vocabulary, "<end>": len(ALPHABET)}, "<end>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<end>")
