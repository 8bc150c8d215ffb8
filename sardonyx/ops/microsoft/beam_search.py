"""BeamSearch and WhisperBeamSearch: the most probable texts, by subgraphs that score tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Softmax
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Body, Outputs, Value, Walk, op
from sardonyx.ops.dtypes import FLOAT32, INT32
from sardonyx.ops.microsoft import cached_decoder, masked_decoder
from sardonyx.ops.microsoft.beams import beam_step, best_texts
from sardonyx.ops.microsoft.cached_decoder import Encoded
from sardonyx.ops.microsoft.searching import Search, check_number_of_tokens, read_number, with_room
from sardonyx.ops.microsoft.timestamps import SpecialTokens
from sardonyx.ops.microsoft.token_scores import Rules, last_scores

# The kinds of models, as `model_type` numbers them.
GPT, T5, WHISPER = 0, 1, 2
# Maximum number of beams, as in onnxruntime.
MOST_BEAMS = 128


@op(domain="com.microsoft")
def BeamSearch(
    walk: Walk,
    input_ids: Value,
    max_length: Value,
    min_length: Value | None,
    num_beams: Value,
    num_return_sequences: Value,
    length_penalty: Value = None,
    repetition_penalty: Value = None,
    vocab_mask: Value = None,
    prefix_vocab_mask: Value = None,
    attention_mask: Value = None,
    decoder_input_ids: Value = None,
    logits_processor: Value = None,
    *,
    decoder: Body,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: Body | None = None,
    eos_token_id: int,
    init_decoder: Body | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int,
    vocab_size: int = -1,
    outputs: Outputs,
) -> Value:
    """Return the most probable texts, their scores, and the scores of all tokens in each step.

    A text is the prompt of a decoder such as GPT-2 and what follows, or what the decoder of a model
    such as T5 or Whisper returns for an encoded prompt.
    """
    if (
        model_type == WHISPER
        and logits_processor is not None
        and read_number(walk, "logits_processor", logits_processor)
    ):
        raise ValueError(
            "logits_processor asks for Whisper's rules on timestamps, but only WhisperBeamSearch "
            "has attributes for its special tokens"
        )
    tokens = _first_tokens(input_ids, model_type, decoder_input_ids, decoder_start_token_id)
    longest, beams, count = _sizes(walk, tokens, max_length, num_beams, num_return_sequences)
    search = Search.of(
        beam_step,
        Rules(
            *(eos_token_id, pad_token_id, no_repeat_ngram_size, vocab_size),
            beams=beams,
            early_stopping=early_stopping == 1,
            steps=longest - tokens.shape[1] if outputs > 2 else 0,
        ),
        longest,
        repetition_penalty=repetition_penalty,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        min_length=min_length,
        length_penalty=length_penalty,
    )
    state = _beams(walk, search, tokens)
    if model_type == GPT:
        state = masked_decoder.searched(
            walk, search, state, tokens, attention_mask, decoder, init_decoder
        )
    else:
        masks = _mask(walk, input_ids, attention_mask, pad_token_id) if model_type == T5 else ()
        encoded = _encoded(input_ids, masks, tokens, encoder, decoder)
        state = cached_decoder.searched(walk, search, state, tokens, encoded, masks, decoder)
    return _best(walk, search, state, count, length_penalty, outputs)


@op(domain="com.microsoft")
def WhisperBeamSearch(
    walk: Walk,
    input_ids: Value,
    max_length: Value,
    min_length: Value | None,
    num_beams: Value,
    num_return_sequences: Value,
    length_penalty: Value = None,
    repetition_penalty: Value = None,
    vocab_mask: Value = None,
    prefix_vocab_mask: Value = None,
    attention_mask: Value = None,
    decoder_input_ids: Value = None,
    logits_processor: Value = None,
    cross_qk_layer_head: Value = None,
    extra_decoding_ids: Value = None,
    temperature: Value = None,
    *,
    beginning_timestamp_token_id: int | None = None,
    decoder: Body,
    decoder_output_cross_qk: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: Body | None = None,
    eos_token_id: int,
    init_decoder: Body | None = None,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    no_speech_token_id: int = -1,
    no_timestamps_token_id: int | None = None,
    pad_token_id: int,
    start_of_lm_token_id: int | None = None,
    transcribe_token_id: int | None = None,
    translate_token_id: int | None = None,
    vocab_size: int = -1,
    outputs: Outputs,
) -> Value:
    """Search as BeamSearch does, by Whisper's rules on timestamps if `logits_processor` is 1.

    The last result is the probability that each sound has no speech.
    """
    if model_type != WHISPER or decoder_output_cross_qk or extra_decoding_ids is not None:
        raise ValueError(
            f"model_type is {model_type}, and must be 2; decoders that return the products of "
            "queries and keys, and extra_decoding_ids, are not supported"
        )
    timestamps: tuple[int, ...] = ()
    if logits_processor is not None and read_number(walk, "logits_processor", logits_processor):
        timestamps = _special_tokens(
            end=eos_token_id,
            start=decoder_start_token_id,
            translate=translate_token_id,
            transcribe=transcribe_token_id,
            start_of_lm=start_of_lm_token_id,
            no_timestamps=no_timestamps_token_id,
            first_timestamp=beginning_timestamp_token_id,
        )
    tokens = _first_tokens(input_ids, model_type, decoder_input_ids, decoder_start_token_id)
    longest, beams, count = _sizes(walk, tokens, max_length, num_beams, num_return_sequences)
    search = Search.of(
        beam_step,
        Rules(
            *(eos_token_id, pad_token_id, no_repeat_ngram_size, vocab_size),
            timestamps=timestamps,
            beams=beams,
            early_stopping=early_stopping == 1,
            steps=longest - tokens.shape[1] if outputs > 2 else 0,
        ),
        longest,
        repetition_penalty=repetition_penalty,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        min_length=min_length,
        temperature=temperature,
        length_penalty=length_penalty,
    )
    state = _beams(walk, search, tokens)
    encoded = _encoded(input_ids, (), tokens, encoder, decoder)
    state = cached_decoder.searched(walk, search, state, tokens, encoded, (), decoder)
    results = _best(walk, search, state, count, length_penalty, min(outputs, 3))
    if outputs < 5:
        return results
    (silence,) = walk.apply(
        _share_of, encoded.logits, rules=tuple(search.rules), token=no_speech_token_id
    )
    return (*results, None, silence)


# -- what a search starts with ---------------------------------------------------------------------


def _first_tokens(
    input_ids: Value, model_type: int, decoder_input_ids: Value, start_token: int
) -> Value:
    """Return the tokens that the texts of the results begin with."""
    if model_type not in (GPT, T5, WHISPER):
        raise ValueError(f"model_type is {model_type}, but must be 0, 1 or 2")
    axes = 3 if model_type == WHISPER else 2
    shape = tuple(input_ids.shape)
    if len(shape) != axes or not all(shape):
        raise ValueError(f"input_ids has shape {shape}, but must have {axes} axes, none of size 0")
    if model_type == GPT:
        return input_ids
    if model_type == WHISPER and decoder_input_ids is not None:
        given = tuple(decoder_input_ids.shape)
        if len(given) != 2 or given[0] != shape[0] or not given[1]:
            raise ValueError(
                f"decoder_input_ids has shape {given}, but must be ({shape[0]}, length)"
            )
        return decoder_input_ids
    if start_token < 0:
        raise ValueError(f"decoder_start_token_id is {start_token}, but must be a token")
    return np.full((shape[0], 1), start_token, INT32)


def _sizes(
    walk: Walk, tokens: Value, max_length: Value, num_beams: Value, num_return_sequences: Value
) -> tuple[int, int, int]:
    """Return the length of the texts, and how many beams and results each has."""
    longest = read_number(walk, "max_length", max_length)
    beams = read_number(walk, "num_beams", num_beams)
    count = read_number(walk, "num_return_sequences", num_return_sequences)
    length = tokens.shape[1]
    if longest <= length:
        raise ValueError(f"max_length is {longest}, but must exceed the {length} first tokens")
    check_number_of_tokens(longest - length)
    if not 1 <= count <= beams <= MOST_BEAMS:
        raise ValueError(
            f"num_return_sequences is {count} and num_beams is {beams}, but they must be positive "
            f"and in order, and at most {MOST_BEAMS}"
        )
    return longest, beams, count


def _beams(walk: Walk, search: Search, tokens: Value) -> tuple[Value, ...]:
    """Return equal beams: the first state of a search."""
    pad = search.rules.pad_token_id
    state: tuple[Value, ...] = walk.apply(
        _equal_beams, tokens, beams=search.rules.beams, longest=search.longest, pad_token_id=pad
    )
    return state


def _equal_beams(
    xp: Backend, tokens: Array, *, beams: int, longest: int, pad_token_id: int
) -> Array:
    rows = with_room(xp, tokens, longest=longest, pad_token_id=pad_token_id)
    return xp.broadcast_to(rows[:, None, :], (tokens.shape[0], beams, longest))


def _mask(
    walk: Walk, input_ids: Value, attention_mask: Value, pad_token_id: int
) -> tuple[Value, ...]:
    """Return the mask of an encoder's tokens. By default it hides paddings on the left."""
    if attention_mask is None:
        masks: tuple[Value, ...] = walk.apply(
            _from_first_token, input_ids, pad_token_id=pad_token_id
        )
        return masks
    require_shape("attention_mask", attention_mask, tuple(input_ids.shape))
    return (attention_mask,)


def _from_first_token(xp: Backend, input_ids: Array, *, pad_token_id: int) -> Array:
    is_token = xp.astype(xp.not_equal(input_ids, pad_token_id), xp.dtype(INT32))
    return xp.astype(xp.cumulative_sum(is_token, axis=1) > 0, xp.dtype(INT32))


def _encoded(
    input_ids: Value, masks: Sequence[Value], tokens: Value, encoder: Body | None, decoder: Body
) -> Encoded:
    """Run the encoder, which may also decode the first tokens."""
    if encoder is None:
        raise ValueError("the attribute 'encoder' is missing, but model_type asks for it")
    decodes = len(encoder.inputs) > 1 + len(masks)
    firsts = (tokens,) if decodes else ()
    return Encoded.of(encoder(input_ids, *masks, *firsts), decoder, decodes)


def _special_tokens(**ids: int | None) -> tuple[int, ...]:
    missing = [name for name, token in ids.items() if token is None]
    if missing:
        raise ValueError(
            f"logits_processor asks for rules on timestamps, but attributes with the tokens "
            f"{', '.join(missing)} are missing"
        )
    return tuple(SpecialTokens(**{name: token or 0 for name, token in ids.items()}))


# -- what it returns -------------------------------------------------------------------------------


def _best(
    walk: Walk,
    search: Search,
    state: tuple[Value, ...],
    count: int,
    length_penalty: Value,
    outputs: int,
) -> tuple[Any, ...]:
    """Return the best texts of the last state, their scores, and those of all tokens."""
    dtype = FLOAT32 if length_penalty is None else length_penalty.dtype
    results = walk.apply(
        best_texts,
        *(*search.arrays, *state),
        rules=tuple(search.rules),
        count=count,
        dtype=dtype,
    )
    return tuple(results[:outputs])


def _share_of(xp: Backend, logits: Array, *, rules: tuple[Any, ...], token: int) -> Array:
    """Return the probability of one token."""
    scores = last_scores(xp, logits, Rules(*rules))
    if not 0 <= token < scores.shape[1]:
        raise ValueError(
            f"no_speech_token_id is {token}, but must be a token below {scores.shape[1]}"
        )
    return Softmax(xp, scores)[:, token]
