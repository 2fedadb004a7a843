"""
A Hugging Face causal LM and its tokenizer behind the two things the loop needs of a model.

``transformers`` is imported when a path was given, and only then.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from stepscope_trainer.model import ModelError


class HuggingFaceLM(nn.Module):
    """
    ``tokens[B, T]`` to ``logits[B, T, V]``. Rows are padded on the right, which a causal model never looks at.
    """

    def __init__(self, inner: nn.Module) -> None:
        """
        Wrap the model ``inner``.
        """
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        """
        Logits of the token after each of ``tokens``.
        """
        return cast("Tensor", self.inner(input_ids=tokens, use_cache=False).logits)


def checkpoint_name(name: str) -> str:
    """
    What the weight ``name`` of a :class:`HuggingFaceLM` is called in a checkpoint of the model it wraps.
    """
    return name.removeprefix("inner.")


class Tokenizer:
    """
    The tokenizer stored beside the model.
    """

    def __init__(self, path: str) -> None:
        """
        Load it from ``path``.
        """
        self._inner: Any = _load("AutoTokenizer", path)
        if self._inner.eos_token_id is None:
            raise ModelError(f"the tokenizer of {path!r} has no end-of-sequence token; an answer could never end")
        self.end = int(self._inner.eos_token_id)

    def encode(self, text: str) -> list[int]:
        """
        The tokens of ``text``, without special tokens.
        """
        return [int(token) for token in self._inner.encode(text, add_special_tokens=False)]

    def decode(self, tokens: Sequence[int]) -> str:
        """
        The text of ``tokens``.
        """
        return str(self._inner.decode(list(tokens), skip_special_tokens=True))


def model(path: str) -> nn.Module:
    """
    The causal LM at ``path``, in float32 and without dropout: log-probs of trainer and rollouter have to agree.
    """
    inner = cast("nn.Module", _load("AutoModelForCausalLM", path, dtype=torch.float32))
    for module in inner.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return HuggingFaceLM(inner)


def _load(kind: str, path: str, **options: object) -> Any:
    if not Path(path).is_dir():
        raise ModelError(f"--model {path!r} is no folder; give the folder of a saved Hugging Face causal LM")
    try:
        return getattr(_transformers(), kind).from_pretrained(path, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        raise ModelError(f"--model {path!r} cannot be loaded as {kind}: {error}") from error


def _transformers() -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ModelError("--model needs the package transformers: pip install transformers") from error
