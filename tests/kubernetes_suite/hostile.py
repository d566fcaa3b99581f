"""Hostile texts, as findings of a broken or malicious node may have them, by a seed."""

import random

_PIECES = (
    *("Xid 79", "NVRM: GPU has fallen off the bus", "ann: fan", "; everstep why other", "a: b"),
    *(
        "\n",
        "\r\n",
        "\t",
        "\x00",
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
    ),
    *("\u202e", "\u2066", "\u200b", "ﬃ", "ü", "日本", "😀", "\ud800", "e\u0301", "\u0430"),
    *("{{ .spec }}", "${jndi:ldap://x}", "$(reboot)", "`id`", "%s%n", "'; DROP TABLE node; --"),
    *("<script>alert(1)</script>", "&lt;", '"}],"x":[{"y":"', "\\", "\\u0000", "|", "&&", "../.."),
    *("everstep.io/isolated=x:NoExecute", "key: value\n- a", "!!python/object", "---", "# x"),
)


def hostile_text(chance: random.Random) -> str:
    """Return one text; some are empty, some have a hundred thousand signs."""
    pieces = [chance.choice(_PIECES) for _ in range(chance.randrange(8))]
    pieces += [chr(chance.randrange(0x11000)) for _ in range(chance.randrange(6))]
    chance.shuffle(pieces)
    text = chance.choice(("", " ", "\t")).join(pieces)
    return text * chance.choices((1, 50, 2000), (90, 9, 1))[0]
