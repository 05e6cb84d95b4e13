"""Texts that make_tokenizer_goldens.py encodes: scripts, spaces, broken UTF-8, special tokens."""

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. It's what we'll do, they've said; I'd agree!",
    "HELLO World, CamelCaseWords and snake_case_words, don't, DON'T, can'T, I'M, we'Ve.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. ÄÖÜ äöü ß ẞ",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L’été à Genève.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Qué? ¡Sí! Ñandú.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Pchnąć w tę łódź jeża lub ośm skrzyń fig.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Καλημέρα κόσμε! ΣΊΣΥΦΟΣ σίσυφος",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир! Її є ґанок.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. مَرْحَبًا بِالعَالَم ١٢٣٤٥ ۴۵۶",
    "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם עוֹלָם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। नमस्ते १२३",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน สวัสดีชาวโลก ๑๒๓",
    "天地玄黃，宇宙洪荒。我能吞下玻璃而不伤身体。你好，世界！二〇二六年",
    "いろはにほへと ちりぬるを。私はガラスを食べられます。カタカナ、ﾊﾝｶｸ、ー、々。東京都",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 안녕하세요 ㅋㅋㅋ",
    "👋🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ 😀😃😄 🤷🏿‍♀️ 1️⃣ ✌🏻 🫠 🧑🏾‍💻",
    "e\u0301 a\u0308 o\u0302\u0323 q\u0307\u0323 \u1e9b\u0323 한 \u1112\u1161\u11ab ﬁ ﬀ ② ㍿ Å Å Ω ²",
    "x = 3.14159 * 10**-7; y = 1,234,567.89; 0xDEADBEEF; 1e10; ½ ⅷ ① ௧௨ ٣ 12345678901234567890",
    "def f(a, b=None):\n    \"\"\"doc\"\"\"\n    return {'a': a[0], **b} if a != b else [i for i in (1, 2)]\n",
    "#include <cstdio>\r\nint main() {\r\n\tstd::printf(\"%d\\n\", 42);\r\n\treturn 0;\r\n}\r\n",
    "<div class=\"a b\">&nbsp;&lt;tag/&gt;</div> https://example.org/a_b?c=d&e=%20f#g user@example.org",
    "spaces:  two   three    four     five\ttab\t\ttabs \t mixed\n\n\nlines\r\n\r\n \n  \n end   ",
    "\u00a0nbsp\u2003em\u3000ideographic\u2028line\u2029par\u0085nel\u1680ogham\u180emvs\u200bzws\u202f\u205f\ufeff",
    "\x00\x01\x02\x07\x08\x0b\x0c\x1b\x1f\x7f\x80\x9f controls",
    "--- *** ### ... !!! ??? ;;; ::: ((())) [[[]]] {{{}}} ‘’ “” «» — – … • § ¶ † ‡ € £ ¥ ¢ © ® ™ ± × ÷",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa hahahahahaha",
    "don’t 'S 'ſ 'LL 'RE ſtraße K K İstanbul ı I Ⅷ ǅ ŉ ΐ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈 𒀀 𓀀 𐤀 𠀀𠀁 𪜀 𰀀 𱍐 \U0001e030 \U00010d40 \u0897 \u1c89",
    "U+FFFD \ufffd noncharacters \ufffe \U0010ffff private \ue000 \U000f0000",
]
BROKEN = [
    b"\xff", b"\x80abc", b"abc\xc3", b"\xc3\xa9\xc3(", b"\xe2\x82", b"\xe2\x82\xac\xe2\x28\xa1",
    b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
    b"\xe0\x80\x80", b"a\xf8\x88\x80\x80\x80b", b"\xfe\xfe\xff\xff", b"Caf\xe9 latin1 na\xefve",
    b"\xf0\x80\x80\x41", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", b" \xa0 \x85 ",
]
SPECIALS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<mask>", "<tool>",
    "<tool_call>", "word", "ﬁne", "Éa", " sp ", "<|a|>", "<|a|><|b|>", "<left>", "<right>", "<both>",
]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCXYZ", " ", "  \t\n\r", "0123456789", ".,;:!?'\"-_()[]{}<>|/\\",
    "éèüßñçøåœ", "абвгдежзиЙЩ", "αβγδΣς", "ابتثجح١٢", "אבגדה", "कखगिीु्१", "กขคงัิ๑", "漢字中文你好",
    "ひらがなカタ", "한국어", "\u0301\u0308\u0323\u0307", "👋🏽👩‍🔬🏳️❤️😀", "'s't're've'll'd'm'S'LL",
    "▁▁ ", "\u00a0\u2003\u3000\u200b\u0085", "ſKİıǅⅷ½②", "𝔘𝟙𠀀𰀀", "\x00\x07\x1b",
]


def random_string(rng, specials):
    parts = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.15:
            parts.append(rng.choice(specials))
        elif kind < 0.35:
            sentence = rng.choice(SENTENCES)
            start = rng.randrange(len(sentence))
            parts.append(sentence[start : start + rng.randint(1, 20)])
        elif kind < 0.42:
            code_points = [rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]) for _ in "ab"]
            parts.extend(chr(c) for c in (rng.randrange(m) for m in code_points) if not 0xD800 <= c < 0xE000)
        else:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 8))))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def texts(rng, count, specials):
    """Every hand-made text, then `count` random ones; bytes where they are not UTF-8."""
    yield from ["", " ", "  ", "\n", "a", " a", "a ", "▁", "▁a", " ▁ a", "'", "\u0301"]
    yield from SENTENCES
    yield from BROKEN
    for special in specials:
        yield from [special, f"a{special}b", f" {special} ", f"x  {special}\n y", special * 2]
    yield "<|im_start|>user\nHello, how are you?<|im_end|>\n<|im_start|>assistant\n"
    yield "word words sword word! (word) word_ wordé éword 1word word"
    yield "x" * 700 + " " + "ab" * 300 + " " + "é" * 200
    yield " " * 300 + "a" + "\n" * 200
    for i in range(count):
        text = random_string(rng, specials)
        if i % 20 == 0:  # broken by a cut and by a stray byte
            data = bytearray(text.encode())
            data.insert(rng.randrange(len(data) + 1), rng.randrange(0x80, 0x100))
            yield bytes(data[: rng.randint(1, len(data))])
        else:
            yield text
