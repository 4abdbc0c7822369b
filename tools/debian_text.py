#!/usr/bin/env python3
"""debian_text.py OUT [PACKAGE...] - the text of Debian's documentation packages, as JSON lines to pre-train on.

    python3 tools/debian_text.py corpus          # OUT/train.jsonl, OUT/held_out.jsonl: {"text", "source"} a document

Packages are downloaded by `apt-get download` and unpacked below a temporary folder: nothing is installed, and the
downloads are kept in OUT/packages, where a second run finds them. A document is a page of HTML, a manual page, a
reStructuredText, POD or plain text file; menus, scripts and markup are taken out, documents that are shorter than
MIN_CHARACTERS or stood there before are left out. One document in 50 is held out, by the hash of its text. Needs only
python3, apt and dpkg. The text is as free as the packages are (their licences: /usr/share/doc/PACKAGE/copyright of
each).
"""
import glob
import gzip
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile

PACKAGES = """linux-doc python3-doc git-doc perl-doc manpages manpages-dev postgresql-doc libreoffice-help-en-us
vim-runtime debian-reference-en debian-policy developers-reference sqlite3-doc apache2-doc exim4-doc-html
python-django-doc r-doc-html octave-doc rust-doc""".split()
PLACES = ("usr/share", "usr/lib/libreoffice/help")
# what stands there a second time, in another language, or is a program's text
SKIP = re.compile(r"/_sources/|/_modules/|/translations/|/rust-doc/html/(src|core)/|/man/man\d/perl|perltoc|"
                  r"/manual/(?!en/)[a-z-]{2,5}/")
MIN_CHARACTERS = 400
MAX_BYTES = 2_000_000  # a larger file is a table or an index, not a text
HELD_OUT = 50

BREAKS = set("p div br li dt dd tr h1 h2 h3 h4 h5 h6 pre table ul ol dl section article blockquote hr".split())
HIDDEN = set("script style nav header footer head noscript svg button form select".split())
MENU = re.compile(r"sidebar|navbar|navigation|\bnav|related|footer|headerlink|breadcrumb|toctree|toc\b|index", re.I)
VOID = set("area base br col embed hr img input link meta source track wbr".split())


class Page(html.parser.HTMLParser):
    """The text of a page without its menus; lines of <pre> stay as they are."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.out, self.open, self.hidden, self.pre = [], [], 0, 0

    def handle_starttag(self, tag, attrs):
        if tag in BREAKS:
            self.out.append("\n")
        if tag in VOID:
            return
        words = " ".join(v or "" for k, v in attrs if k in ("class", "id", "role"))
        hide = tag in HIDDEN or (tag in ("div", "ul", "a", "table", "aside") and bool(MENU.search(words)))
        self.open.append((tag, hide))
        self.hidden += hide
        self.pre += tag == "pre"

    def handle_endtag(self, tag):
        if tag in BREAKS:
            self.out.append("\n")
        if not any(name == tag for name, _ in self.open):
            return
        while self.open:
            name, hide = self.open.pop()
            self.hidden -= hide
            self.pre -= name == "pre"
            if name == tag:
                break

    def handle_data(self, data):
        if not self.hidden:
            self.out.append(data if self.pre else re.sub(r"\s+", " ", data))


def from_html(text):
    page = Page()
    page.feed(text)
    page.close()
    return "".join(page.out)


ROFF = [(re.compile(p, re.M), by) for p, by in (
    (r"^['.]\\\".*\n", ""), (r"^\.(SH|SS|Sh|Ss) +\"?(.*?)\"?$", r"\n\2"), (r"^\.(TH|Dd|Dt|Os).*\n", ""),
    (r"^\.(PP|P|LP|TP|IP|Pp|sp|br|HP)\b.*$", "\n"), (r"^\.[A-Z]{1,2} +", ""), (r"^\..*\n", ""),
    (r"\\f[A-Z]|\\f\([A-Z]{2}|\\f\[[A-Z]*\]", ""), (r"\\\((aq|cq|oq)|\\\[(aq|cq|oq)\]", "'"),
    (r"\\\((lq|rq)|\\\[(lq|rq)\]", '"'),
    (r"\\\(em", "--"), (r"\\-", "-"), (r"\\&|\\c|\\:|\\,|\\/|\\%", ""), (r"\\e|\\\(rs", r"\\"),
    (r"\\\*\([A-Za-z\"]{2}|\\s[+-]?\d", ""),
    (r"\\~|\\ ", " "))]


def from_roff(text):
    for pattern, by in ROFF:
        text = pattern.sub(by, text)
    return text


def from_pod(text):
    text = re.sub(r"^=(?:head\d|item) +", "", text, flags=re.M)
    text = re.sub(r"^=\w+.*$", "", text, flags=re.M)
    return re.sub(r"\b[BCEFIL]<+ ?([^<>|]*?)(?:\|[^<>]*)? ?>+", r"\1", text)


def reader_of(path):
    name = path[:-3] if path.endswith(".gz") else path
    kind = name.rsplit(".", 1)[-1].lower()
    if kind in ("html", "htm", "xhtml"):
        return from_html
    if kind == "pod":
        return from_pod
    if "/man/" in path and re.fullmatch(r"\d\w*", kind):
        return from_roff
    if kind in ("txt", "rst", "md") and not name.endswith("tags.txt"):
        return str
    return None


def tidy(text):
    lines = [line.rstrip() for line in text.replace("\r", "").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def documents(folder):
    for root, folders, files in os.walk(folder):
        folders.sort()
        place = os.path.relpath(root, folder)
        if not any(place.startswith(p) for p in PLACES):
            continue
        for name in sorted(files):
            path = os.path.join(root, name)
            read = reader_of(path)
            if not read or SKIP.search(path) or os.path.islink(path) or os.path.getsize(path) > MAX_BYTES:
                continue
            if name.endswith(".txt") and name[:-4] + ".html" in files:
                continue
            with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as f:
                text = f.read().decode("utf-8", "replace")
            if "\ufffd" not in text:
                yield os.path.join(place, name), tidy(read(text))


def contents(package):
    """The package, and those of documentation that a package without files of its own depends on."""
    shown = subprocess.run(["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True).stdout
    depends = re.search(r"^Depends: (.*)$", shown, re.M)
    more = re.findall(rf"\b({re.escape(package.split('-')[0].rstrip('3'))}[\w.]*-doc[\w.-]*)",
                      depends[1]) if depends else []
    return [package] + [m for m in more if m != package]


def fetch(package, folder):
    for name in contents(package):
        if not glob.glob(os.path.join(glob.escape(folder), name + "_*.deb")):
            if subprocess.run(["apt-get", "-qq", "download", name], cwd=folder).returncode:
                print(f"{name}: cannot be downloaded, left out", file=sys.stderr)
        yield from sorted(glob.glob(os.path.join(glob.escape(folder), name + "_*.deb")))[-1:]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out, names = sys.argv[1], sys.argv[2:] or PACKAGES
    packages = os.path.join(out, "packages")
    os.makedirs(packages, exist_ok=True)
    seen = set()
    train_path, held_out_path = os.path.join(out, "train.jsonl"), os.path.join(out, "held_out.jsonl")
    with open(train_path, "w") as train, open(held_out_path, "w") as held_out:
        for name in names:
            count = size = 0
            for deb in fetch(name, packages):
                with tempfile.TemporaryDirectory() as folder:
                    subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
                    for source, text in documents(folder):
                        digest = hashlib.sha256(text.encode()).digest()
                        if len(text) < MIN_CHARACTERS or digest in seen:
                            continue
                        seen.add(digest)
                        to = held_out if int.from_bytes(digest[:4], "big") % HELD_OUT == 0 else train
                        to.write(json.dumps({"text": text, "source": source}, ensure_ascii=False) + "\n")
                        count, size = count + 1, size + len(text.encode())
            print(f"{name}: {count:,} documents, {size:,} bytes", file=sys.stderr)


main()
