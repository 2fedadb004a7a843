"""
The policy: a small causal LM of the project's own, or a Hugging Face one, with the codec that goes with it.

Owns architecture and vocabulary. Where the weights are trained, sent and sampled from is left to others: both ends
get a model from ``build`` by way of the job, and know it as a module that maps ``tokens[B, T]`` to ``logits[B, T, V]``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 64
"""Wide enough for two-digit addition, and a training step of 256 samples stays near 50 ms on one core."""

LAYERS = 2
"""One layer to gather the digits, one to add them with the carry."""

HEADS = 4
"""Sixteen dimensions a head."""

POSITIONS = 16
"""``07+05=12`` and its end take 9."""

ALPHABET = "0123456789+="


class ModelError(ValueError):
    """
    The model that was asked for cannot be had here; the message says why.
    """


class Codec(Protocol):
    """
    Text to tokens and back.
    """

    @property
    def end(self) -> int:
        """
        The token that ends an answer; also what rows are filled up with.
        """

    def encode(self, text: str) -> list[int]:
        """
        The tokens of ``text``, with no end token.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """
        The text of ``tokens``, which hold no end token.
        """


@dataclass(frozen=True)
class Characters:
    """
    One token per character of the arithmetic task.
    """

    end: int = len(ALPHABET)

    def encode(self, text: str) -> list[int]:
        """
        The tokens of ``text``.
        """
        return [ALPHABET.index(character) for character in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """
        The text of ``tokens``; a token that is no character becomes ``?``.
        """
        return "".join(ALPHABET[token] if 0 <= token < len(ALPHABET) else "?" for token in tokens)


class Block(nn.Module):
    """
    Pre-norm attention and feed-forward.
    """

    def __init__(self) -> None:
        """
        Weights as torch initialises them.
        """
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed_norm = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """
        ``x[B, T, W]`` after attention to what came before, and feed-forward.
        """
        batch, length, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + cast("Tensor", self.feed(self.feed_norm(x)))


class SmallLM(nn.Module):
    """
    Two layers, learned positions, an untied head. Right padding needs no mask: attention is causal.
    """

    def __init__(self, *, vocabulary: int) -> None:
        """
        A fresh model over ``vocabulary`` tokens, drawn from torch's current seed.
        """
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """
        Logits ``[B, T, V]`` of the token after each of ``tokens[B, T]``.
        """
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        return cast("Tensor", self.head(self.norm(self.blocks(x))))


def build(path: str = "", *, seed: int = 0) -> nn.Module:
    """
    A model: the small one drawn from ``seed``, or the Hugging Face causal LM at ``path``.

    Raises:
        ModelError: ``path`` cannot be loaded here.
    """
    if path:
        from stepscope_trainer import hugging_face

        return hugging_face.model(path)
    torch.manual_seed(seed)
    return SmallLM(vocabulary=len(ALPHABET) + 1)


def codec(path: str = "") -> Codec:
    """
    The codec of the model that ``build`` makes.

    Raises:
        ModelError: ``path`` has no tokenizer that can be loaded here.
    """
    if path:
        from stepscope_trainer import hugging_face

        return hugging_face.Tokenizer(path)
    return Characters()
