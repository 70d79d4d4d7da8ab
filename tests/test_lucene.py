"""Words and stems as Lucene's English analyser makes them: worked by hand, compared with Porter's own examples, and on any text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import lucene
from agentgym.lucene import STOP_WORDS, stem, terms, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The cat sat on the mat", ["the", "cat", "sat", "on", "the", "mat"]),
        ("O'Neill of the U.S. has 3,610.5 m", ["o'neill", "of", "the", "u.s", "has", "3,610.5", "m"]),
        ("the dog's friend’s ponies' tails＇s", ["the", "dog", "friend", "ponies", "tails"]),
        ("it's don't x's's 's", ["it", "don't", "x's", "s"]),  # only the last 's goes, and only after a word
        ("end.Start 1.e a,b 1,b 5;5 5:5 a:b a;b 5'5", ["end.start", "1", "e", "a", "b", "1", "b", "5;5", "5", "5", "a:b", "a", "b", "5'5"]),
        ("a..b a.'b .a. 1..2 a1.5b a.1", ["a", "b", "a", "b", "a", "1", "2", "a1.5b", "a", "1"]),
        ('xx-large t-shirt 1/2" 100% $20.00 #1 a&b', ["xx", "large", "t", "shirt", "1", "2", "100", "20.00", "1", "a", "b"]),
        ("usb_c _ __x__ a_.b '_'", ["usb_c", "__x__", "a_", "b"]),  # underscores join, and are no word alone
        ("e-mail@x.com {{7*7}} <b>", ["e", "mail", "x.com", "7", "7", "b"]),
        ("", []),
        ("... -- \t\n !", []),
        ("Café ÉCOLE naïve “smart” don’t", ["café", "école", "naïve", "smart", "don’t"]),
        ("ΟΔΟΣ İzmir", ["οδοσ", "izmir"]),  # letter by letter: no final sigma, and one character for each
        (
            "e\u0301cole so\u00adft a\u200bb",
            ["e\u0301cole", "so\u00adft", "a", "b"],
        ),  # what extends a letter stays with it; a zero-width space divides
        ("a\xa0b a\u202fb a\u3000b", ["a", "b", "a\u202fb", "a", "b"]),
        ("½ inch × 3² m², Ⅷ", ["inch", "3", "m", "ⅷ"]),
        ("東京 ひら カタカナ カa ｶﾞ 한국어", ["東", "京", "ひ", "ら", "カタカナ", "カ", "a", "ｶﾞ", "한국어"]),
        ("สวัสดี ครับ မြန်မာ", ["สวัสดี", "ครับ", "မြန်မာ"]),
        ("צה\"ל ג'ירפה ג' א\"", ['צה"ל', "ג'ירפה", "ג'", "א"]),
        ("٣٬٠٠٠ ١٫٥", ["٣٬٠٠٠", "١٫٥"]),
        (
            "Nike™ © 🔥hot🔥🔥 ★★ ✔️ 👍🏽 👨‍👩‍👧 🇩🇪🇫🇷 #️⃣ 1️⃣",
            ["nike", "™", "©", "🔥", "hot", "🔥", "🔥", "★", "★", "✔️", "👍🏽", "👨‍👩‍👧", "🇩🇪", "🇫🇷", "#️⃣", "1️⃣"],
        ),
        ("● → ■ … – • \ud800 \U000e0041", []),
        ("x" * 300, ["x" * 255, "x" * 45]),
        ("a." * 200, ["a." * 127 + "a", "a." * 71 + "a"]),
        ("é" * 300 + " y", ["é" * 255, "é" * 45, "y"]),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_terms() -> None:
    assert terms("It's the Women's 3 Cotton-Shirts, for running!") == ["women", "3", "cotton", "shirt", "run"]
    assert terms("us is s as dogs' generously general generic") == ["us", "s", "dog", "gener", "gener", "gener"]
    assert terms("the and of") == terms("it's that's") == terms("") == []
    assert len(STOP_WORDS) == 33 and all(terms(word) == [] for word in STOP_WORDS)


PORTER = """caresses caress ponies poni ties ti caress caress cats cat feed feed agreed agre plastered plaster bled bled motoring motor sing sing
conflated conflat troubled troubl sized size hopping hop tanned tan falling fall hissing hiss fizzed fizz failing fail filing file happy happi
sky sky relational relat conditional condit rational ration valenci valenc hesitanci hesit digitizer digit conformabli conform radicalli radic
differentli differ vileli vile analogousli analog vietnamization vietnam predication predic operator oper feudalism feudal decisiveness decis
hopefulness hope callousness callous formaliti formal sensitiviti sensit sensibiliti sensibl triplicate triplic formative form formalize formal
electriciti electr electrical electr hopeful hope goodness good revival reviv allowance allow inference infer airliner airlin gyroscopic gyroscop
adjustable adjust defensible defens irritant irrit replacement replac adjustment adjust dependent depend adoption adopt homologou homolog
communism commun activate activ angulariti angular homologous homolog effective effect bowdlerize bowdler probate probat rate rate cease ceas
controll control roll roll""".split()
LATER = """possibly possibl doubly doubli probably probabl apology apolog biology biologi psychology psycholog eulogies eulogi bibli bibli"""
CASES = """us us dying dy eying ei yyed yy sayings sai saying sai boy boi enjoy enjoi toy toi syzygy syzygi nation nation opinion opinion onion onion
fashion fashion version version ing ing ed ed ion ion sses ss need need seed seed bus bu buses buse gas ga class class glasses glass oil oil
don't don't b12s b12 naïves naïv écoles école tried tri dies di"""


def test_stems() -> None:
    for listed in (PORTER, LATER.split(), CASES.split()):
        assert [(w, stem(w)) for w in listed[::2]] == list(zip(listed[::2], listed[1::2], strict=True))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene, "_KEPT", 10)
    monkeypatch.setattr(lucene, "_TERMS", lucene._Terms())
    for i in range(100):
        assert terms(f"cats{i} dogs") == [f"cats{i}", "dog"]
        assert len(lucene._TERMS) <= 10
    assert terms("x" * 40 + "ing") == ["x" * 40 + "ing"] and max(map(len, lucene._TERMS)) < 40


ANY = st.text(st.characters(), max_size=80)  # surrogates too
TRICKY = st.text(st.sampled_from("ab1 2_'.:,;\"#sS's’é漢カひ한אב״กัม်©🔥🏽👨\u200d\ufe0f\u20e3\u0301🇩\u00ad\u202f\xa0ⓐ½²"), max_size=40)


@settings(max_examples=400, deadline=None)
@given(ANY | TRICKY, ANY | TRICKY)
def test_any_text(a: str, b: str) -> None:
    found = words(a)
    assert all(0 < len(w) <= 255 and w.strip("_") and w == w.replace("İ", "i").replace("Σ", "σ") for w in found)
    assert sum(map(len, found)) <= len(a)
    assert words(f"{a} {b}") == found + words(b)
    assert terms(a) == [stem(w) for w in found if w not in STOP_WORDS]
    for term in terms(a):
        term.encode()


@settings(max_examples=400, deadline=None)
@given(st.text(st.characters(max_codepoint=127) | st.sampled_from("ab12_.':,;"), max_size=400))
def test_the_rules_for_ascii_are_those_for_all_characters(text: str) -> None:
    assert [t for t in lucene._mixed(text) if t.strip("_")] == [t for t in lucene._ascii(text) if t.strip("_")]


@pytest.mark.parametrize(
    "text", ["a." * 50_000, "_" * 50_000 + "é", "é_" * 50_000, "漢" * 100_000, "x" * 100_000 + " é", "#\u0301" * 50_000, "🔥\u200d" * 50_000]
)
def test_long_texts_take_time_in_proportion(text: str) -> None:
    start = time.process_time()
    assert len(terms(text)) <= len(text)
    assert time.process_time() - start < 20  # less than one; what grows with the square would take minutes
