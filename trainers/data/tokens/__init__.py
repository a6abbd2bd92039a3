"""Files of tokens in llm.c's format: reads them, and makes them from text, once, in several processes."""

from trainers.data.tokens.byte_pairs import BytePairs
from trainers.data.tokens.making import Made, Source, escaped, made_tokens
from trainers.data.tokens.shards import GPT2, LLAMA3, TokenFile, token_files, write_tokens
from trainers.data.tokens.stretches import Stretch, held_out, stretches
from trainers.data.tokens.tokenizers import tokenizer_of

__all__ = [
    "GPT2", "LLAMA3", "BytePairs", "Made", "Source", "Stretch", "TokenFile", "escaped", "held_out", "made_tokens",
    "stretches", "token_files", "tokenizer_of", "write_tokens",
]  # fmt: skip
