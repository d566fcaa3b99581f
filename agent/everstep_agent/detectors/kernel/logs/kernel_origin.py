"""Origin of a log line: whether its form is one in which the kernel's own words are saved.

Looser than the parser of log formats and a tenth as dear, for it sees every line of a log: it tells
a kernel log from any other file, and decides about no finding.
"""

import re

# What mails, tickets, colours, grep -Hn, pdsh, kubectl, docker and container runtimes put before.
_LEAD = (
    r"(?:[\ufeff\s>|*`\"'-]|\x1b\[[0-9;]{0,16}m|\{(?:code|noformat)[^}]{0,40}\}){0,16}+"
    r"(?:\[pod/\S{1,200}\] |(?![\d,]{1,40}-;)[\w./@+~-]{1,250} {0,40}[:|](?:\d{1,9}:)? ?"
    r"|\d{1,9}[:-]|\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?:std\w\w\w [FP] )?)?"
)
_DMESG = (
    # Six digits, other than in Xorg's log; behind it no host and program, as journalctl has them.
    r"\[ {0,12}\d{1,10}\.\d{6}(?: [<+][^\]\n]{1,20})?\](?! [^\s:]{1,255} \S{1,64}\[\d+\]: )"
    # dmesg -H, -T in any language, -x, --raw, --time-format iso; records of /dev/kmsg.
    r"|\[ {0,8}[+<] {0,8}\d{1,8}\.\d{6}>?\]"
    r"|\[(?:[^\W\d_]{2,9}\.? ?){1,2} ?\d{1,2} \d\d:\d\d(?::\d\d \d{4})?\]"
    r"|(?:kern|user|daemon|auth|authpriv|syslog|local\d) {0,6}:"
    r"(?:emerg|alert|crit|err|warn|notice|info|debug) {0,6}: "
    r"|<\d{1,3}>(?:\[|[A-Za-z](?!\S{1,8} {1,2}\d{1,2} \d\d:))"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:?\d\d "
    r"|\d{1,4},\d{1,12},\d{1,18},[^;\s]{1,80};"
)
# Behind a stamp and a host, as syslog in both forms and journalctl have it.
_SYSLOG = r"(?:[^\n]{0,60}?[\d\]TCZ] )?[\w.-]{1,255} kernel(?:: | - - )|kernel: "
# One record of a journal or of dmesg --json, in several lines or in one; a quote before a key is
# taken for a part of the lead.
_RECORD = (
    r"_TRANSPORT(?:=|\" ?: ?\")kernel|[{\s]{0,20}\"?pri\" ?: ?\d"
    r"|\{[^\n]{0,4000}?\"(?:_TRANSPORT|SYSLOG_IDENTIFIER)\" ?: ?\"kernel\""
)
# What the kernel says of itself as it starts, and of devices, where nothing stands before it
# (journalctl -o cat).
_BARE = (
    r"(?:Linux version \d|(?:Kernel c|C)ommand line: |BIOS-(?:e820|provided)|ACPI: |NVRM: |x86/"
    r"|EXT4-fs |XFS \(|audit: type="
    r"|(?:usb|pci|pcieport|nvme|mlx\d_core|i40e|ixgbe|ice|bnxt_en) \S{0,40}\d\S{0,20}: )"
)
# What leads to the text of a record of which nothing says who wrote it.
_TEXT = r"(?:\{?\s{0,20}\"?(?:MESSAGE|message|log)\" ?: ?\"|MESSAGE=)"
_KERNEL = re.compile(
    rf"{_LEAD}(?:{_DMESG}|{_SYSLOG}|{_RECORD}|{_BARE}|{_TEXT}(?:{_DMESG}|{_BARE}))"
)


def is_of_kernel(text: str) -> bool:
    """Return whether a line has a form in which the kernel's words are saved."""
    if "\u00a0" in text or "&nbsp;" in text:
        text = text.replace("\u00a0", " ").replace("&nbsp;", " ")
    return _KERNEL.match(text) is not None
