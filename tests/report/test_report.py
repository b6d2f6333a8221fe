#!/usr/bin/env python3
"""Opens reports of `quatt check --report` in a browser and compares what they show with the JSON of the same run.

Exit status 77 where there is no browser: ctest lists the test as skipped.
"""

import argparse
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

from browser import Browser, find_browser

NO_BROWSER = 77

# What the page shows, as text; of SVG drawings, how many bars there are.
SHOWN = """(() => {
    const text = node => node.textContent;
    const all = (root, selector) => [...root.querySelectorAll(selector)];
    const rows = table => all(table, 'tbody tr').map(row => [...row.cells].map(text));
    const grid = table => all(table, 'tbody tr').filter(row => row.cells.length > 1).map(row => [...row.cells].map(text));
    return {
        title: document.title,
        lead: text(document.getElementById('lead')),
        recommendations: rows(document.querySelector('#recommendations table')),
        panels: all(document, '#heat .panels > section').map(section => ({
            title: section.querySelector('h3') ? text(section.querySelector('h3').firstChild) : '', rows: grid(section.querySelector('table')),
            over: all(section, 'td.over').length})),
        layers: all(document, 'details.layer').map(layer => ({
            title: text(layer.querySelector('h3')),
            chip: text(layer.querySelector('.chip')),
            facts: layer.querySelector('.facts') && text(layer.querySelector('.facts')),
            notes: all(layer, '.note').map(text),
            recipes: all(layer, '.recipes').flatMap(rows),
            counts: all(layer, '.counts').flatMap(rows),
            bars: all(layer, '.histogram rect').length,
            strip: all(layer, '.strip table').flatMap(grid),
            channels: all(layer, '.channel').map(c => [text(c.querySelector('h4')), text(c.querySelector('p')), c.querySelector('svg').getAttribute('aria-label')]),
        })),
        names: rows(document.querySelector('#names table')),
        bound: text(document.getElementById('bound')),
        footer: text(document.querySelector('footer')),
    };
})()"""

# Texts with less contrast to what is behind them than WCAG asks of text (4.5), and how many were looked at.
CONTRAST = """(() => {
    const parse = text => { const m = text.match(/[\\d.]+/g).map(Number); return m.length === 4 ? m : [...m, 1]; };
    const luminance = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const bad = new Set();
    let looked = 0;
    const walker = document.createTreeWalker(document.getElementById('page'), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        const style = getComputedStyle(node);
        if (!walker.currentNode.data.trim() || parseFloat(style.fontSize) === 0 || !node.getClientRects().length || style.visibility !== 'visible') continue;
        let back = node;
        while (back && parse(getComputedStyle(back).backgroundColor)[3] === 0) back = back.parentElement;
        const behind = luminance(parse(getComputedStyle(back || document.body).backgroundColor));
        const own = luminance(parse(node.namespaceURI.endsWith('svg') ? style.fill : style.color));
        const ratio = (Math.max(own, behind) + .05) / (Math.min(own, behind) + .05);
        ++looked;
        if (ratio < 4.5) bad.add(node.tagName + '.' + (node.getAttribute('class') || '') + ' ' + ratio.toFixed(2) + ' ' + walker.currentNode.data.slice(0, 20));
    }
    return {looked, bad: [...bad].slice(0, 10)};
})()"""


# Tables that must be seen whole, and those of which more is to be seen than the line below them says.
CUT = """(() => {
    const boxes = [...document.querySelectorAll('.scroll')].filter(box => box.getClientRects().length && !box.closest('details:not([open])'));
    const cut = boxes.filter(box => box.scrollWidth > box.clientWidth);
    const hinted = boxes.filter(box => box.nextSibling && box.nextSibling.className === 'hint');
    return {recipes: cut.filter(box => box.querySelector('.recipes')).length,
        heads: cut.filter(box => box.querySelector('.grid:not(.dense)')).length,
        hints: hinted.filter(box => box.nextSibling.hidden === cut.includes(box)).length, boxes: hinted.length};
})()"""


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def number(value):
    return float(value) if isinstance(value, str) else value


def same_number(text, value, what):
    """The text is the number, rounded to the digits that it has."""
    value = number(value)
    plain = text.replace("\u2212", "-").replace("∞", "inf").replace("NaN", "nan")
    try:
        shown = float(plain)
    except ValueError:
        raise Failure(f"{what}: '{text}' is no number, wanted {value}") from None
    if math.isnan(value) or math.isinf(value):
        check(shown == value or (math.isnan(shown) and math.isnan(value)), f"{what}: shows {text}, is {value}")
        return
    mantissa, _, exponent = plain.partition("e")
    decimals = len(mantissa.partition(".")[2])
    unit = 10.0 ** ((int(exponent) if exponent else 0) - decimals)
    # The data in the page has six digits.
    check(abs(shown - value) <= 0.5001 * unit + 1e-5 * abs(value), f"{what}: shows {text}, is {value}")
    digits = len(mantissa.replace(".", "").replace("-", "").lstrip("0"))
    check(value == 0 or digits >= 1, f"{what}: shows {text}, is {value}")


def escaped(text):
    """As the page writes names: control and direction characters as escapes."""
    return re.sub("[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", lambda m: f"\\u{ord(m[0]):04x}", text)


def title_of(layer):
    return escaped(layer["layer"]) if layer["layer"] else "(q, k, v)"


def percent_of(text):
    return text[1:] if text.startswith("<") else text


def compare(shown, data):
    """All that the page shows of the data."""
    layers, bound = data["layers"], data["bound"]
    by_cost = lambda layer: sorted(layer["recipes"], key=lambda recipe: -recipe["cost"])
    fails = lambda value: not number(value) < bound

    check(escaped(data["file"]) in shown["title"], "the title does not name the file")
    if len(layers) > 1:
        for name in {layer["recommendation"]["recipe"] for layer in layers}:
            count = sum(layer["recommendation"]["recipe"] == name for layer in layers)
            amount = "every layer" if count == len(layers) else f"{count} layer" + ("" if count == 1 else "s")
            check(f"{name or 'none'} for {amount}" in shown["lead"], f"lead: {shown['lead']}")

    # What a reader needs who never saw a recipe's name.
    check(shown["names"] == [[r["recipe"], r["about"]] for r in sorted(layers[0]["recipes"], key=lambda recipe: recipe["cost"])], f"names: {shown['names']}")
    check(all(r["about"] for r in layers[0]["recipes"]), "a recipe without an explanation")
    source = "is the usual bound of quatt" if data["bound_source"] == "default" else "was asked for with --bound"
    check(f"{bound} {source}" in shown["bound"], f"bound: {shown['bound']}")

    rows = shown["recommendations"]
    check(len(rows) == len(layers) + len(data["failed"]), f"{len(rows)} recommendations")
    for row, layer in zip(rows, layers):
        advice = layer["recommendation"]
        check(row[:3] == [title_of(layer), advice["recipe"] or "none", escaped(advice["sentence"])], f"recommendation: {row}")
        parts = re.findall(r"(\S+) (\S+) \(head (\d+)\)", row[3])
        check([(name, int(head)) for name, _, head in parts] == [(r["recipe"], r["head"]) for r in advice["rejected"]], f"rejected: {row}")
        for (_, text, _), rejected in zip(parts, advice["rejected"]):
            same_number(text, rejected["rel_l2"], "rejected")
    for row, layer in zip(rows[len(layers):], data["failed"]):
        check(row[1] == "not checked" and row[2] == "".join(escaped(reason) for reason in layer["reasons"]), f"failed layer: {row}")

    # The heat map.
    def same_heads(cells, recipe, what):
        check(len(cells) == len(recipe["heads"]), f"{what}: {len(cells)} heads")
        for text, head in zip(cells, recipe["heads"]):
            same_number(text, head["rel_l2"], what)
            # .0010, and not .001 beside it.
            check(not 1e-4 <= number(head["rel_l2"]) < .0095 or re.fullmatch(r"\.00\d\d", text), f"{what}: {text}")

    if len(layers) == 1:
        check(len(shown["panels"]) == 1, "one panel")
        for row, recipe in zip(shown["panels"][0]["rows"], by_cost(layers[0]), strict=True):
            check(row[0] == recipe["recipe"], f"heat map: {row[0]}")
            same_heads(row[1:], recipe, "heat map")
    else:
        for panel, recipe in zip(shown["panels"], by_cost(layers[0]), strict=True):
            check(panel["title"] == recipe["recipe"], f"panel {panel['title']}")
            mine = [next(r for r in layer["recipes"] if r["recipe"] == recipe["recipe"]) for layer in layers]
            for row, own, layer in zip(panel["rows"], mine, layers, strict=True):
                same_heads(row[1:], own, f"heat map, {recipe['recipe']}, {layer['layer']}")
            check(panel["over"] == sum(fails(head["rel_l2"]) for own in mine for head in own["heads"]), "marks of the bound")

    for part, layer in zip(shown["layers"], layers, strict=True):
        name = layer["layer"]
        check(part["title"] == title_of(layer) and part["chip"] == (layer["recommendation"]["recipe"] or "none"), f"layer {part['title']}")
        if part["facts"] is None:
            continue  # closed, and not yet drawn
        check(layer["shape"]["text"] in part["facts"] and f"{layer['rows_compared']} of " in part["facts"], part["facts"])
        check(part["notes"] == [escaped(note) for note in layer["notes"]], f"notes: {part['notes']}")
        recipes = by_cost(layer)
        for row, recipe in zip(part["recipes"], recipes, strict=True):
            check(row[0] == recipe["recipe"] and row[3] == f"head {recipe['worst_heads'][0]}", f"recipes: {row}")
            fields = ("rel_l2", "worst_rel_l2", None, "cosine", "max_error", "lse_error", "time_ms")
            for text, field in zip(row[1:], fields, strict=True):
                if field:
                    same_number(text, recipe[field], f"{name} {recipe['recipe']} {field}")

        # The histogram.
        counts = part["counts"]
        for row, field in zip(counts, ("median", "p95", "max")):
            for text, recipe in zip(row[1:], recipes, strict=True):
                same_number(text, recipe["row_errors"][field], f"{name} rows {field}")
        for text_column, recipe in enumerate(recipes, 1):
            own = [int(row[text_column]) for row in counts[3:]]
            check(sum(own) == layer["rows_compared"] * len(recipe["heads"]) - sum(layer["rows_left_out"]), f"{name}: the histogram leaves rows out")
            check([c for c in own if c] == [c for c in recipe["row_errors"]["counts"] if c], f"{name} counts")
        check(part["bars"] == sum(c > 0 for recipe in recipes for c in recipe["row_errors"]["counts"]), f"{name}: bars")

        # What the heads are like.
        strip = part["strip"]
        for row, recipe in zip(strip, recipes):
            check(row[0] == recipe["recipe"], f"strip: {row[0]}")
            same_heads(row[1:], recipe, f"{name} strip")
        rest = strip[len(recipes):]
        check([row[0] for row in rest] == ["mean of rows", "largest row"] + 3 * ["Q", "K", "V"], f"strip: {[row[0] for row in rest]}")
        mass = layer["light_mass"]
        inputs = [layer["inputs"][operand] for operand in "qkv"]
        largest = [[max(abs(number(a)), abs(number(b))) for a, b in zip(x["min"], x["max"])] for x in inputs]
        values = [[100 * number(m["mean"]) for m in mass], [100 * number(m["max"]) for m in mass], *largest,
                  *[[100 * number(v) for v in x["mean_share"]] for x in inputs], *[x["outlier"] for x in inputs]]
        for row, wanted in zip(rest, values, strict=True):
            check(len(row) - 1 == len(wanted), f"{name} {row[0]}: {len(row) - 1} cells")
            for text, value in zip(row[1:], wanted):
                if text == "<.01":
                    check(0 < value < .01, f"{name} {row[0]}: shows {text}, is {value}")
                else:
                    same_number(text, value, f"{name} {row[0]}")

        # The channels of one head.
        group = layer["shape"]["heads"] // layer["shape"]["heads_kv"]
        query_head = int(part["channels"][0][0].split()[-1])
        check(any(entry["head"] == query_head for entry in layer["inputs"]["q"]["channels"]), f"{name}: channels of head {query_head}")
        for (heading, text, label), operand in zip(part["channels"], "qkv", strict=True):
            head = query_head if operand == "q" else query_head // group
            check(heading == f"{operand.upper()} of head {head}" and text in label, f"{name}: {heading}, {label}")
            entry = next(e for e in layer["inputs"][operand]["channels"] if e["head"] == head)
            found = re.fullmatch(r"Largest value (\S+) in channel (\d+); largest mean (\S+) in channel (\d+)\.", text)
            finite = all(math.isfinite(number(v)) for v in entry["min"] + entry["max"])
            check((found is not None) == finite, f"{name} {heading}: {text}")
            if found:
                channel = int(found[2])
                edge = max(entry["min"][channel], entry["max"][channel], key=abs)
                same_number(found[1], edge, f"{name} {heading}")
                check(abs(edge) == max(map(abs, entry["min"] + entry["max"])), f"{name} {heading}: channel {channel}")
                same_number(found[3], entry["mean"][int(found[4])], f"{name} {heading} mean")

    for word in data["command"]:
        check(escaped(word).replace("'", "'\\''") in shown["footer"], f"the footer lacks {word}")
    for text in (data["quatt_version"], data["compiler"], data["created"], data["machine"]["cpu"], data["machine"]["features"]):
        check(text in shown["footer"], f"the footer lacks {text}")


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def write_safetensors(path, tensors, metadata=None):
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def qkv(name, tokens, heads, heads_kv, dim, seed, spoil=None):
    """Tensors of a layer: N(0,1) with channel means in K, and one outlier channel."""
    source = random.Random(seed)
    tensors = {}
    for operand, count in (("q", heads), ("k", heads_kv), ("v", heads_kv)):
        means = [source.gauss(0, 1) if operand == "k" else 0 for _ in range(count * dim)]
        values = [source.gauss(mean, 1) * (8 if i % dim == 3 else 1) for _ in range(tokens) for i, mean in enumerate(means)]
        if spoil and operand == spoil[0]:
            values[spoil[1]] = spoil[2]
        tensors[(name + "." if name else "") + operand] = ([tokens, count, dim], bf16(values))
    return tensors


class Cases:
    def __init__(self, quatt, browser, folder):
        self.quatt, self.browser, self.folder = quatt, browser, folder

    def report(self, source, *flags, status=0):
        html, data = os.path.join(self.folder, "report.html"), os.path.join(self.folder, "report.json")
        done = subprocess.run([self.quatt, "check", source, "--report", html, "--json", data, *flags], capture_output=True, text=True)
        check(done.returncode == status, f"quatt check: status {done.returncode}\n{done.stderr}")
        with open(data, encoding="utf-8") as file:
            return html, json.load(file)

    def looks_right(self, html, themes=("light", "dark"), widths=(360, 400, 1280), whole=False):
        browser = self.browser
        for width in widths:
            for theme in themes:
                browser.view(width, theme=theme)
                browser.open(html)
                where = f"{width} px, {theme}"
                check(not browser.misdeeds(), f"{where}: {browser.misdeeds()}")
                wide = browser.run("document.documentElement.scrollWidth")
                check(wide <= width, f"{where}: the page is {wide} px wide")
                browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))")
                cut = browser.run(CUT)
                check(cut["recipes"] == 0 and cut["hints"] == 0, f"{where}: tables are cut: {cut}")
                check(cut["heads"] == 0 or not whole, f"{where}: eight heads are cut: {cut}")
                check(browser.run("document.getElementById('plain').hidden && !document.getElementById('page').hidden"), "the page is not shown")
                contrast = browser.run(CONTRAST)
                check(contrast["looked"] > 50 and not contrast["bad"], f"{where}: low contrast: {contrast}")
                dark = browser.run("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]) < 64")
                check(dark == (theme == "dark"), f"{where}: wrong background")

    def prints(self, html):
        browser = self.browser
        browser.view(720, theme="dark", media="print")
        browser.open(html)
        wide = browser.run("document.documentElement.scrollWidth")
        check(wide <= 720, f"on paper: {wide} px wide")
        check(browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "on paper: the dark theme")
        check(not browser.run(CONTRAST)["bad"], f"on paper: low contrast: {browser.run(CONTRAST)}")
        browser.pdf(os.path.join(self.folder, "report.pdf"))
        check(os.path.getsize(os.path.join(self.folder, "report.pdf")) > 10000, "the PDF is empty")

    def real(self, capture):
        """A trained network's layers: every number, at two widths, in both themes, on paper, and without scripts."""
        html, data = self.report(capture, "--rows", "64")
        check(os.path.getsize(html) < 1_000_000, f"{os.path.getsize(html)} bytes")
        self.looks_right(html)
        self.looks_right(html, themes=("light",), widths=(400, 1200), whole=True)  # of eight heads
        shown = self.browser.run(SHOWN)
        compare(shown, data)
        check(all(part["facts"] for part in shown["layers"]), "a layer of three is closed")
        self.doctored(html, data)
        self.prints(html)

        self.browser.view(360)
        self.browser.scripts(False)
        self.browser.open(html)
        self.browser.scripts(True)
        text = self.browser.run("document.getElementById('plain').innerText")
        for layer in data["layers"]:
            check(f"{layer['layer']}: {layer['recommendation']['sentence']}" in text, "without scripts: no recommendation")
        check(self.browser.run("document.documentElement.scrollWidth") <= 360, "without scripts: the page scrolls sideways")

    def doctored(self, html, data):
        """A page that shows other numbers than the JSON is found out."""
        for old, new in (('"rel_l2":', '"rel_l2":1.5,"other":'), ('"mean_share":[', '"mean_share":[0.77,'), ('"p95":', '"p95":3,"other":')):
            with open(html, encoding="utf-8") as file:
                text = file.read()
            head, tag, rest = text.partition('id="data">')
            # The last of them, which is that of a head or of V.
            at = rest.rindex(old)
            wrong = os.path.join(self.folder, "wrong.html")
            with open(wrong, "w", encoding="utf-8") as file:
                file.write(head + tag + rest[:at] + new + rest[at + len(old):])
            self.browser.open(wrong)
            try:
                compare(self.browser.run(SHOWN), data)
            except (Failure, ValueError):
                continue
            raise Failure(f"a doctored report passes: {new}")

    def uses(self, capture):
        """Tips by pointer and keys, the choice of a head, and links."""
        html, data = self.report(capture, "--rows", "16")
        browser = self.browser
        browser.view(1280)
        browser.open(html)
        tip = "document.getElementById('tip')"
        browser.run("document.querySelector('#heat td:not(.off)').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
        check(browser.run(tip + ".hidden") is False, "no tip")
        layer = data["layers"][0]
        text = browser.run(tip + ".textContent")
        dearest = sorted(layer["recipes"], key=lambda recipe: -recipe["cost"])[0]
        check(text.startswith(f"{layer['layer']}, head 0, {dearest['recipe']}\n"), text)
        same_number(re.search(r"rel-L2 (\S+)", text)[1].rstrip(","), dearest["heads"][0]["rel_l2"], "tip")
        same_number(re.search(r"LSE error (\S+)", text)[1], dearest["heads"][0]["lse_error"], "tip")
        same_number(re.search(r"light keys (\S+) %", text)[1], 100 * layer["light_mass"][0]["mean"], "tip")
        browser.run("document.querySelector('.strip .scroll').focus()")
        for key, head in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowDown", 1), ("ArrowLeft", 0)):
            browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
            check(f"head {head}, " in browser.run(tip + ".textContent"), f"{key}: {browser.run(tip + '.textContent')}")
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
        check(browser.run(tip + ".hidden"), "Escape leaves the tip")
        browser.view(400)
        browser.run("document.querySelectorAll('details.more').forEach(details => { details.open = true; })")
        browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))")
        cut = browser.run(CUT)
        check(cut["boxes"] == 15 and cut["hints"] == 0, f"tables that go on to the right: {cut}")
        browser.view(1280)
        for head in range(layer["shape"]["heads"]):
            browser.run(f"(() => {{ const s = document.getElementById('head-0'); s.value = '{head}'; s.dispatchEvent(new Event('change')); }})()")
            compare(browser.run(SHOWN), data)
            check(browser.run("document.querySelector('.channel h4').textContent") == f"Q of head {head}", "the choice of a head")
        check(not browser.misdeeds(), str(browser.misdeeds()))

    def hostile(self):
        """Names that are markup, that hide their direction, or that are long; NaN; a layer that cannot be checked."""
        names = ["a</script><script>alert(1)</script>", "b\"><img src=x onerror=alert(2)>", "c<!--<script>", "d\u202egpj.exe\u0007",
                 "e" + "x" * 300, "f.&amp;<b>"]
        tensors = {}
        for i, name in enumerate(names):
            tensors |= qkv(name, 6, 4, 2, 16, i, ("v", 5, math.nan) if i == 1 else ("k", 5, math.inf) if i == 2 else None)
        tensors |= qkv("bad</script><script>alert(3)</script>", 6, 3, 2, 16, 9)
        path = os.path.join(self.folder, "x<img src=q onerror=alert(4)>'\"& .safetensors")
        write_safetensors(path, tensors, {"is_causal": "</p><script>alert(5)</script>"})
        html, data = self.report(path, status=1)
        check(len(data["failed"]) == 1 and len(data["layers"]) == len(names), "layers")
        check([layer["layer"] for layer in data["layers"]] == names, "names")
        self.looks_right(html)
        self.browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; d.draw && d.draw(); })")
        compare(self.browser.run(SHOWN), data)
        check(not self.browser.misdeeds(), str(self.browser.misdeeds()))
        check(self.browser.run("document.querySelectorAll('img, script, iframe, b').length") == 2, "names became elements")
        self.prints(html)

    def many(self):
        """Many heads and layers: short labels, cells without numbers on them, layers that are drawn when they are opened."""
        tensors = {}
        for i in range(14):
            tensors |= qkv(f"model.layers.{i}.attn", 4, 24, 8, 16, i)
        path = os.path.join(self.folder, "many.safetensors")
        write_safetensors(path, tensors)
        html, data = self.report(path, "--recipes", "bf16,fp8,nvfp4")
        self.looks_right(html, themes=("light",), widths=(360, 1280))
        shown = self.browser.run(SHOWN)
        compare(shown, data)
        check(all(part["facts"] is None for part in shown["layers"]), "a layer is open")
        check([row[0] for row in shown["panels"][0]["rows"]] == [str(i) for i in range(14)], "labels")
        self.browser.run("location.hash = '#layer-13'")
        self.browser.run("new Promise(done => setTimeout(done, 50))")
        shown = self.browser.run(SHOWN)
        compare(shown, data)
        check(shown["layers"][13]["facts"] is not None, "a link opens no layer")
        check(not self.browser.misdeeds(), str(self.browser.misdeeds()))

    def left_out(self):
        """A query row that is not finite: the others are shown, and a note says how many are missing."""
        path = os.path.join(self.folder, "spoilt.safetensors")
        write_safetensors(path, qkv("", 40, 4, 2, 16, 3, ("q", 7 * 64 + 5, math.nan)))
        html, data = self.report(path, "--bound", "0.5")
        layer = data["layers"][0]
        check(layer["rows_left_out"] == [1, 0, 0, 0] and layer["recommendation"]["recipe"], f"rows left out: {layer['rows_left_out']}")
        self.looks_right(html, themes=("light",), widths=(400,))
        shown = self.browser.run(SHOWN)
        compare(shown, data)
        check(any("left out of the comparison" in note and "1 row in 1 head" in note for note in shown["layers"][0]["notes"]), "no note")
        check("rms of " in self.browser.run("document.querySelector('.columns figcaption').textContent"), "largest error has no scale")

    def one(self):
        """One layer without a name, all of whose results are zero."""
        tensors = qkv("", 5, 2, 1, 16, 1)
        tensors["v"] = (tensors["v"][0], bytes(len(tensors["v"][1])))
        path = os.path.join(self.folder, "one.safetensors")
        write_safetensors(path, tensors)
        html, data = self.report(path)
        self.looks_right(html, widths=(360,))
        compare(self.browser.run(SHOWN), data)
        check("nothing to compare" in self.browser.run("document.body.innerText"), "no reason")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quatt", required=True, help="the program")
    parser.add_argument("--capture", required=True, help="a safetensors file of a trained network")
    options = parser.parse_args()
    program = find_browser()
    if not program:
        print("skipped: no Chromium here; scripts/setup.sh test installs one, QUATT_BROWSER names another")
        return NO_BROWSER
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quatt-report-") as folder, Browser(program) as browser:
        cases = Cases(os.path.abspath(options.quatt), browser, folder)
        for name, case in (("real", lambda: cases.real(options.capture)), ("uses", lambda: cases.uses(options.capture)),
                           ("hostile", cases.hostile), ("many", cases.many), ("left out", cases.left_out), ("one", cases.one)):
            try:
                case()
                print(f"ok    {name}")
            except Failure as failure:
                failed += 1
                print(f"FAIL  {name}: {failure}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
