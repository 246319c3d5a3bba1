"""Passages and queries as a sequence-to-sequence model reads and writes them."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM
from rayrank.core.errors import ConfigError
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.seq2seq import Seq2SeqTemplate, special_tokens

PAD, END, BEGIN = 0, 1, 2


def tokenizer(form: str, pad: str | None = "<pad>") -> PreTrainedTokenizerFast:
    backend = Tokenizer(WordLevel({"<pad>": PAD, "</s>": END, "<s>": BEGIN, "<unk>": 3, "a": 4, "b": 5}, "<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(single=form, special_tokens=[("</s>", END), ("<s>", BEGIN)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=pad, eos_token="</s>", unk_token="<unk>")


def test_special_tokens_are_those_that_the_tokenizer_adds() -> None:
    bert = load_tokenizer(MINILM)

    assert special_tokens(tokenizer("$A </s>")) == ((), (END,))
    assert special_tokens(tokenizer("<s> $A </s>")) == ((BEGIN,), (END,))
    assert special_tokens(bert) == ((bert.cls_token_id,), (bert.sep_token_id,))


def test_t5_reads_a_passage_and_its_end_and_writes_behind_its_start_token() -> None:
    template = Seq2SeqTemplate.of(tokenizer("$A </s>"), start_id=PAD, length=4, query_length=2)
    pieces = Ragged.of([[4, 5, 4, 5, 4], [5]])

    assert template.passages(pieces).values.tolist() == [4, 5, 4, END, 5, END]
    assert template.queries(pieces).values.tolist() == [PAD, 4, 5, END, PAD, 5, END]
    assert (template.prompt, template.start_id, template.end_id) == ((PAD,), PAD, END)


def test_bart_writes_behind_its_start_token_and_the_token_before_every_text() -> None:
    template = Seq2SeqTemplate.of(tokenizer("<s> $A </s>"), start_id=END, length=8, query_length=4)

    assert template.prompt == (END, BEGIN)
    assert template.queries(Ragged.of([[4]])).values.tolist() == [END, BEGIN, 4, END]


def test_without_a_start_token_the_first_token_of_a_text_is_the_start() -> None:
    bert = load_tokenizer(MINILM)
    template = Seq2SeqTemplate.of(bert, None, length=8, query_length=4)

    assert template.prompt == (bert.cls_token_id,)
    assert template.queries(Ragged.of([[7]])).values.tolist() == [bert.cls_token_id, 7, bert.sep_token_id]
    assert Seq2SeqTemplate.of(tokenizer("$A </s>"), None, 8, 4).prompt == (PAD,)


@pytest.mark.parametrize(("form", "pad", "lacking"), [("$A", "<pad>", "end of a text"), ("$A </s>", None, "padding")])
def test_a_tokenizer_without_the_tokens_that_are_needed_is_one_sentence(
    form: str, pad: str | None, lacking: str
) -> None:
    with pytest.raises(ConfigError, match=f"no .*{lacking}.*, which doc2query needs"):
        special_tokens(tokenizer(form, pad))
