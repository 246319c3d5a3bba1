"""Porter's stemmer gives the stems of his paper, and those of the two rules he added."""

import pytest

from rayrank.text.stems import stem

# Each step of the algorithm, with the examples of the paper.
EXAMPLES = {
    "plural": "caresses caress ponies poni ties ti caress caress cats cat",
    "past": "feed feed agreed agre plastered plaster bled bled motoring motor sing sing",
    "past, with an e or a letter less": "conflated conflat troubled troubl sized size hopping hop falling fall "
    "hissing hiss fizzed fizz failing fail filing file",
    "y": "happy happi sky sky",
    "step 2": "relational relat conditional condit valenci valenc hesitanci hesit digitizer digit conformabli conform "
    "radicalli radic differentli differ vileli vile analogousli analog vietnamization vietnam predication predic "
    "operator oper feudalism feudal decisiveness decis hopefulness hope callousness callous formaliti formal "
    "sensitiviti sensit sensibiliti sensibl",
    "step 3": "triplicate triplic formative form formalize formal electriciti electr electrical electr hopeful hope "
    "goodness good",
    "step 4": "revival reviv allowance allow inference infer airliner airlin gyroscopic gyroscop adjustable adjust "
    "defensible defens irritant irrit replacement replac adjustment adjust dependent depend adoption adopt homologou "
    "homolog communism commun activate activ angulariti angular homologous homolog effective effect bowdlerize bowdler",
    "step 5": "probate probat rate rate cease ceas controll control roll roll",
    "added": "apology apolog geology geologi possibly possibl",
    "y in front": "yes ye yellowing yellow",
    "too short": "as as i i 東 東",
}


@pytest.mark.parametrize("words", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_stems_are_those_of_the_paper(words: str) -> None:
    pairs = words.split()
    assert {word: stem(word) for word in pairs[::2]} == dict(zip(pairs[::2], pairs[1::2], strict=True))
