"""Saved log prefixes: patterns of what tools write before a message, such as time and host."""

import re

# What leads to a message and is not part of it, tried again and again from the front of a line.
_DAY = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
# Month and weekday in the writer's language: "Okt", "mars", "févr.".
_NAME = r"[^\W\d_]{2,9}\.?"
_SYSLOG = rf"{_NAME} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d{{1,9}})?"
_LEVELS = "emerg|alert|crit|err|warn|notice|info|debug"
# With a comma it is dmesg's, and no host follows; nor does one behind the "Z" of docker.
_FULL = rf"(?:{_NAME} )?(?:{_SYSLOG}|(?!\S{{10,20}},){_DAY}(?: [A-Z]{{2,5}})?)"
STAMP = rf"(?P<time>{_FULL}|\d{{9,10}}\.\d{{6}})"
_ZONED = rf"(?P<time>{_SYSLOG}|(?!\S{{10,20}},|\S{{10,40}}Z ){_DAY})"
# What a kernel line begins with once a tool's own prefix is off: the sign that it was one.
_BEGIN = (
    rf"(?=\[ {{0,12}}[+<]? {{0,8}}\d|\[{_NAME} [\w ]{{0,10}}\d\d:|<\d|{_SYSLOG}|{_DAY}|"
    r"(?:kern|user) {0,6}:|kernel: |NVRM: |nvidia-nvswitch\d|\d{1,4},\d{1,12},\d)"
)
PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        # An answer by mail, white space, marks of chats and tickets, the number of grep -n, cat -n.
        r"^(?:> ?|\s|`{1,3}|\{(?:code|noformat)[^}]{0,40}\}|<(?:pre|code)>"
        rf"|[-*|“\"'] ?{_BEGIN}|\d{{1,9}}(?:[:-]|\s){_BEGIN})+",
        # pdsh, clush -L, srun --label; grep -H, with or without -n.
        rf"^(?!kernel:|NVRM:)(?P<host>[\w.-]{{1,255}}): {_BEGIN}",
        rf"^(?P<file>[\w./@+~-]{{1,250}})(?::(?:\d{{1,9}}:)?|-(?:\d{{1,9}}-)?){_BEGIN}",
        # kubectl logs --prefix, docker compose logs.
        r"^\[pod/\S{1,200}\] ",
        r"^[\w./-]{1,80} {0,40}\| ",
        # Container runtimes (CRI), docker logs --timestamps.
        rf"^(?P<time>{_DAY}) (?:stdout|stderr) [FP] ",
        # A record of /dev/kmsg.
        r"^(?P<priority>\d{1,4}),\d{1,12},(?P<boot_us>\d{1,18}),[^;\s]{1,80};",
        # RFC 5424, and the priority before any other form of syslog.
        rf"^(?:<\d{{1,3}}>)?1 (?P<time>{_DAY}) (?P<host>\S{{1,255}}) (?P<tag>\S{{1,48}}) "
        r"\S{1,128} \S{1,32} (?:-|(?:\[[^\]]{0,2000}\])+) ?",
        r"^<(?P<priority>\d{1,3})>",
        # RFC 3164, rsyslog, journalctl -o short, short-iso, short-precise, short-full, short-unix;
        # then those with a tag that no kernel has.
        rf"^{STAMP} (?P<host>\S{{1,255}}) (?P<tag>(?!\d{{4,8}}:|nvme\d)[\w./@:-]{{1,64}}?)"
        r"(?:\[\d{1,8}\])?: ",
        rf"^{_ZONED} (?P<host>(?!\[)\S{{0,254}}[^\s:]) (?P<tag>(?!\[)[^:]{{1,200}}): ",
        # dmesg --time-format iso, and times of unknown writers.
        rf"^\[?(?P<time>{_DAY})\]?:? ",
        # dmesg -T, dmesg -H.
        rf"^\[(?P<time>{_NAME} {_NAME} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d(?: \d{{4}})?)\] ?",
        rf"^\[(?P<time>{_NAME} {{0,2}}\d{{1,2}} \d\d:\d\d)\] ?",
        r"^\[ {0,8}[+<] {0,8}\d{1,8}\.\d{1,9}>?\] ?",
        # dmesg, also with the caller, and journalctl -o short-monotonic.
        r"^\[ {0,12}(?P<boot>\d{1,10}\.\d{1,9})(?: [<+] {0,8}[\d.]{1,16} ?>?)?\]"
        r"(?:\s?\[ {0,8}[TC]\d{1,8}\])? ?",
        r"^(?!kernel)(?P<host>[\w.-]{1,255}) (?P<tag>kernel): ",
        r"^(?P<host>[\w.-]{1,255}) (?P<tag>[\w./@-]{1,64})\[\d{1,8}\]: (?!segfault)",
        # dmesg -x.
        rf"^(?P<facility>kern|user|daemon|auth\w*|syslog|local\d) {{0,6}}:(?:{_LEVELS}) {{0,6}}: ",
        r"^(?P<tag>kernel): ?",
    )
)
