// Draws the report from the JSON in this page. Text from the data only ever becomes text nodes and attributes, never markup.
'use strict';
(() => {
const report = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const bound = number(report.bound);
// Edges of the colours: eight of rel-L2 between nine colours.
const kLevels = [.002, .005, .01, .02, .05, .1, .2, .5];
// From so many heads on, cells show their colour only; their numbers are in the tip and in the text.
const kDenseHeads = 17;
const kTinyHeads = 41;
// From so many layers on, they are closed at first, and printed as they are.
const kOpenLayers = 6;

// --- Numbers and text -------------------------------------------------------------------------

// NaN and infinities are strings in the JSON.
function number(x) { return typeof x === 'string' ? Number(x) : x; }

// Control characters, and those that turn the direction of text, as escapes: names must not pretend.
function clean(text) {
    return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
        c => '\\u' + c.codePointAt(0).toString(16).padStart(4, '0'));
}

function special(x) { return Number.isNaN(x) ? 'NaN' : x > 0 ? '∞' : '−∞'; }

// With so many digits that count; an exponent where the zeros would be many.
function digits(value, count) {
    const x = number(value);
    if (!Number.isFinite(x)) return special(x);
    if (x === 0) return '0';
    const rounded = Number(x.toPrecision(count));
    const size = Math.abs(rounded);
    if (size < 1e-4 || size >= 1e5) return rounded.toExponential(count - 1).replace('-', '−').replace('e−', 'e-').replace('e+', 'e');
    const decimals = Math.max(count - 1 - Math.floor(Math.log10(size)), 0);
    return rounded.toFixed(decimals).replace('-', '−');
}
function full(value) { return digits(value, 3); }
// For narrow cells: .035, and four decimals below .01, so that .0010 never stands beside .001.
function brief(value) {
    const x = number(value);
    const size = Math.abs(Number(x.toPrecision(2)));
    const text = size >= 1e-4 && size < .01 ? x.toFixed(4).replace('-', '−') : digits(value, size < 1e-4 ? 1 : 2);
    return text.replace(/^(−?)0\./, '$1.');
}
function percent(value) {
    const x = number(value) * 100;
    if (!Number.isFinite(x)) return special(x);
    return (x < 9.95 ? digits(x, 2) : x.toFixed(0)) + ' %';
}
function briefPercent(value) {
    const x = number(value) * 100;
    if (!Number.isFinite(x)) return special(x);
    return x === 0 ? '0' : x < .01 ? '<.01' : x < .995 ? x.toFixed(2).replace(/^0/, '') : x < 9.95 ? x.toFixed(1) : x.toFixed(0);
}
function plural(count, one, many = one + 's') { return count + ' ' + (count === 1 ? one : many); }

function fails(value) { return !(number(value) < bound); }
function levelClass(value) {
    const x = number(value);
    return Number.isFinite(x) ? 'l' + kLevels.filter(edge => x >= edge).length : 'lx';
}

// --- Elements ---------------------------------------------------------------------------------

function fill(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
        if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value);
    }
    for (const child of children.flat(Infinity)) {
        if (child !== null && child !== undefined && child !== '') node.append(child);
    }
    return node;
}
function el(tag, attributes, ...children) { return fill(document.createElement(tag), attributes, children); }
function svg(tag, attributes, ...children) {
    return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

const titles = report.layers.map(layer => layer.layer === '' ? '(q, k, v)' : clean(layer.layer));
// What all long names share is left out of narrow places: model.layers.7.attn -> 7.
const shortTitles = (() => {
    if (titles.length < 2 || Math.max(...titles.map(t => t.length)) <= 10) return titles;
    const parts = titles.map(title => title.split('.'));
    let front = 0;
    let back = 0;
    const shared = at => parts.every(p => p.at(at) !== undefined && p.at(at) === parts[0].at(at));
    while (shared(front) && parts.every(p => p.length > front + 1)) ++front;
    while (shared(-1 - back) && parts.every(p => p.length > front + back + 1)) ++back;
    return parts.map(p => p.slice(front, p.length - back).join('.'))
        .map(t => t.length > 16 ? '…' + t.slice(-15) : t);
})();

// Names may be longer than a phone is wide; they break behind their dots first.
function breakable(text) { return text.length <= 16 ? [text] : text.match(/[^._\/-]*[._\/-]?/g).flatMap((part, i) => i > 0 ? [el('wbr'), part] : [part]); }

function chip(name) {
    return el('span', {class: name === null ? 'chip none' : 'chip'}, name === null ? 'none' : clean(name));
}
function byCost(recipes) {
    return recipes.map((recipe, index) => ({recipe, index}))
        .sort((a, b) => b.recipe.cost - a.recipe.cost || a.index - b.index).map(entry => entry.recipe);
}
// The scroll bar of a box can be moved by keys only where the box takes the focus. Where there is more than can be seen, a line says so.
const watch = new ResizeObserver(entries => {
    for (const {target: box} of entries) box.nextSibling.hidden = box.scrollWidth <= box.clientWidth;
});
function scroller(label, child) {
    const box = el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label}, child);
    watch.observe(box);
    return [box, el('p', {class: 'hint', hidden: ''}, 'goes on to the right →')];
}

// --- The tip ----------------------------------------------------------------------------------

const tip = document.getElementById('tip');
let active = null;
let byKey = false;  // moving to a cell by keys scrolls, and must not take its tip away
function showTip(node, text, x, y) {
    if (active && active !== node) active.classList.remove('on');
    active = node;
    node.classList.add('on');
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x - box.width / 2, document.documentElement.clientWidth - box.width - 8)) + 'px';
    tip.style.top = (y - box.height - 10 < 4 ? y + 26 : y - box.height - 10) + 'px';
}
function hideTip() {
    if (active) active.classList.remove('on');
    active = null;
    tip.hidden = true;
}
function showCell(cell, key = false) {
    byKey = key;
    const box = cell.getBoundingClientRect();
    showTip(cell, cell.tip(), box.left + box.width / 2, box.top);
}
page.addEventListener('pointerover', event => {
    const cell = event.target.closest('td');
    if (cell && cell.tip) showCell(cell);
    else if (event.target.closest('svg') === null) hideTip();
});
page.addEventListener('click', event => {
    const cell = event.target.closest('td');
    if (cell && cell.tip) showCell(cell);
});
document.addEventListener('scroll', () => active && byKey ? showCell(active, true) : hideTip(), {capture: true, passive: true});
document.addEventListener('keydown', event => {
    if (event.key === 'Escape') return hideTip();
    const box = document.activeElement && document.activeElement.closest('.scroll');
    const table = box && box.querySelector('table.grid');
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (!table || !step || document.activeElement.tagName === 'A') return;
    event.preventDefault();
    const rows = [...table.tBodies[0].rows].filter(row => row.cells[1] && row.cells[1].tip);
    let row = active && rows.findIndex(r => r.contains(active));
    let next = rows[0].cells[1];
    if (active && row >= 0) {
        // Cells of K and V may be as wide as several heads; the head decides.
        const head = active.head + (step[0] > 0 ? active.colSpan - 1 : 0) + step[0];
        row = Math.max(0, Math.min(rows.length - 1, row + step[1]));
        next = [...rows[row].cells].find(c => c.tip && c.head <= head && head < c.head + c.colSpan) || active;
    }
    next.scrollIntoView({block: 'nearest', inline: 'nearest'});
    showCell(next, true);
});

// --- Grids: one column a head -----------------------------------------------------------------

// groups: [{title, rows: [{label, href, cells: [{text, style, className, span, tip}]}]}]
function grid(caption, heads, groups) {
    const dense = heads >= kDenseHeads;
    const table = el('table', {class: 'grid heat' + (dense ? ' dense' : '') + (heads >= kTinyHeads ? ' tiny' : ''), 'aria-label': caption});
    table.style.setProperty('--heads', heads);
    const step = dense ? (heads >= kTinyHeads ? 8 : 4) : 1;
    const names = [];
    for (let head = 0; head < heads; ++head) names.push(el('th', {scope: 'col'}, head % step === 0 ? String(head) : ''));
    table.append(el('thead', {}, el('tr', {}, el('td', {class: 'off'}, 'head'), names)));
    const body = el('tbody');
    for (const group of groups) {
        if (group.title) body.append(el('tr', {}, el('th', {class: 'band', colspan: heads + 1, scope: 'rowgroup'}, el('span', {}, group.title))));
        for (const row of group.rows) {
            const line = el('tr', {}, el('th', {scope: 'row', title: row.title},
                row.href ? el('a', {href: row.href}, row.label) : row.label));
            let head = 0;
            for (const cell of row.cells) {
                const td = el('td', {class: cell.className, colspan: cell.span > 1 ? cell.span : null}, cell.text);
                if (cell.style) td.style.background = cell.style;
                td.tip = cell.tip;
                td.head = head;
                head += cell.span || 1;
                line.append(td);
            }
            body.append(line);
        }
    }
    table.append(body);
    return scroller(caption, table);
}

function errorCells(layer, title, recipe) {
    return recipe.heads.map((head, index) => ({
        text: brief(head.rel_l2),
        className: levelClass(head.rel_l2) + (fails(head.rel_l2) ? ' over' : ''),
        tip: () => title + ', head ' + index + ', ' + clean(recipe.recipe) + '\nrel-L2 ' + full(head.rel_l2) +
            (fails(head.rel_l2) ? ', misses the bound ' + bound : '') + '\ncosine ' + number(head.cosine).toFixed(6) +
            '\nlargest error ' + full(head.max_error) + '\nLSE error ' + full(head.lse_error) +
            '\nmass in light keys ' + percent(layer.light_mass[index].mean),
    }));
}

function legend() {
    const steps = kLevels.map(String).map(t => t.replace(/^0/, ''));
    const items = ['0', ...steps];
    return el('div', {class: 'legend heat'},
        el('span', {}, 'rel-L2 of a head, from'),
        el('div', {class: 'scroll'}, el('ol', {}, items.map((text, i) => el('li', {class: 'l' + i}, text)))),
        el('span', {}, el('span', {class: 'key l5 over'}), 'misses the bound ' + bound));
}

// --- Top --------------------------------------------------------------------------------------

function header() {
    const file = clean(report.file);
    document.title = 'quatt check: ' + file;
    const layers = plural(report.layers.length, 'layer');
    const heads = report.layers.reduce((sum, layer) => sum + layer.shape.heads, 0);
    return el('header', {},
        el('p', {class: 'eyebrow'}, 'quatt check · which precision can this attention bear?'),
        el('h1', {}, breakable(file.split('/').pop())),
        el('p', {class: 'dim'}, layers + ', ' + plural(heads, 'head') + ', ' +
            plural(report.layers[0].recipes.length, 'recipe') + ' on device ' + clean(report.device) +
            ', compared with exact attention in fp64'),
        el('nav', {'aria-label': 'Parts of the report'}, [['recommendations', 'Recommendations'], ['names', 'The recipes'], ['heat', 'Every head'], ['layers', 'Layer by layer'], ['guide', 'How to read it'], ['foot', 'Machine and command']]
            .map(([id, text]) => el('a', {href: '#' + id}, text))),
        el('p', {class: 'intro'}, 'Attention can be computed with fewer bits than the 16 that are usual: cheaper, and less exact. A recipe says which numbers get how many bits. Each recipe was run on the queries, keys and values of this file, and its result compared with the exact one, head by head.'));
}

// Where the bound comes from.
function boundText() {
    const usual = 'It lies above what 8-bit rounding costs on random data (.04 to .054) and far below what 4-bit rounding costs there (.14 to .19): a head that misses it loses more than 8 bits explain. It is a convention, and no proof of what a model can bear.';
    return report.bound_source === 'default' ? bound + ' is the usual bound of quatt (--bound sets another). ' + usual : bound + ' was asked for with --bound.';
}

function verdict() {
    const counts = new Map();
    for (const layer of report.layers) {
        const name = layer.recommendation.recipe;
        counts.set(name, (counts.get(name) || 0) + 1);
    }
    const cost = new Map(report.layers[0].recipes.map(recipe => [recipe.recipe, recipe.cost]));
    const order = [...counts.keys()].sort((a, b) => (a === null) - (b === null) || cost.get(a) - cost.get(b));
    const many = report.layers.length > 1;
    const texts = order.map(name => many
        ? (name === null ? 'none' : clean(name)) + ' for ' + (counts.get(name) === report.layers.length ? 'every layer' : plural(counts.get(name), 'layer'))
        : name === null ? 'No recipe stays below the bound' : 'Use ' + clean(name));
    const box = el('section', {class: 'verdict', 'aria-label': 'Recommendation'},
        el('p', {class: 'lead', id: 'lead'}, texts.join(', ')),
        el('p', {class: 'dim'}, 'The cheapest recipe whose relative error (rel-L2: the length of the error over the length of the result; .05 is 5 %) stays below ' + bound + ' in every head' + (many ? ', layer by layer.' : '.')),
        el('p', {class: 'dim', id: 'bound'}, boundText()));
    if (report.failed.length > 0) box.append(el('p', {class: 'miss'}, plural(report.failed.length, 'layer') + ' could not be checked, see below.'));
    if (many && order.length > 1) {
        const all = [...cost.keys()].filter(name => report.layers.every(layer =>
            layer.recipes.every(recipe => recipe.recipe !== name || !fails(recipe.worst_rel_l2))))
            .sort((a, b) => cost.get(a) - cost.get(b));
        box.append(el('p', {class: 'dim', id: 'one'}, all.length > 0 ? 'One recipe for all layers: ' + clean(all[0]) + '.' : 'No single recipe does for all layers.'));
    }
    return box;
}

function recommendations() {
    const rows = report.layers.map((layer, index) => el('tr', {},
        el('th', {scope: 'row', class: titles[index].length <= 16 ? 'whole' : null}, el('a', {href: '#layer-' + index}, breakable(titles[index]))),
        el('td', {}, chip(layer.recommendation.recipe)),
        el('td', {class: 'wide'}, clean(layer.recommendation.sentence)),
        el('td', {class: 'wide', 'data-title': layer.recommendation.recipe === null ? 'All miss the bound' : 'Cheaper, but they miss the bound'},
            layer.recommendation.rejected.length === 0 ? '' : layer.recommendation.rejected.map((r, i) => [i > 0 ? ', ' : '', el('span', {class: 'whole'}, clean(r.recipe) + ' ', el('span', {class: 'miss'}, full(r.rel_l2)), ' (head ' + r.head + ')')]))));
    const failed = report.failed.map(layer => el('tr', {},
        el('th', {scope: 'row'}, layer.layer === '' ? '(q, k, v)' : clean(layer.layer)),
        el('td', {}, el('span', {class: 'chip none'}, 'not checked')),
        el('td', {class: 'wide'}, layer.reasons.map((reason, i) => [i > 0 ? el('br') : '', clean(reason)])),
        el('td', {class: 'wide'})));
    return el('section', {id: 'recommendations'}, el('h2', {}, 'Recommendation per layer'),
        el('table', {class: report.layers.length > 12 ? 'rows cards many' : 'rows cards'},
            el('thead', {}, el('tr', {}, ['Layer', 'Recipe', 'Reason', 'Cheaper, but over the bound in a head'].map(t => el('th', {scope: 'col'}, t)))),
            el('tbody', {}, rows, failed)));
}

// What the names mean.
function recipeNames() {
    return el('section', {id: 'names'}, el('h2', {}, 'The recipes'),
        el('p', {class: 'dim small'}, 'From cheap to dear, by the rates of tensor cores.'),
        el('table', {class: 'rows names'}, el('tbody', {}, [...report.layers[0].recipes].sort((a, b) => a.cost - b.cost).map(recipe => el('tr', {},
            el('th', {scope: 'row'}, clean(recipe.recipe)), el('td', {}, clean(recipe.about)))))));
}

// One panel a recipe, one row a layer. With a single layer, one panel with a row a recipe says the same in less.
function heatMap() {
    const most = Math.max(...report.layers.map(layer => layer.shape.heads));
    const section = el('section', {id: 'heat'}, el('h2', {}, 'Error of every head'),
        el('p', {class: 'dim small'}, 'Relative L2 error of the rows compared; ' + (report.layers.length > 1 ? 'rows are layers, ' : 'rows are recipes, ') +
            'columns are query heads. Recipes go from dear to cheap.'), legend());
    const labels = report.layers.length > 1 ? shortTitles : report.layers[0].recipes.map(recipe => recipe.recipe);
    const width = Math.ceil(10 + 6.8 * Math.max(...labels.map(t => t.length), 4)) + most * (most >= kTinyHeads ? 8.5 : most >= kDenseHeads ? 14 : 35);
    const panels = el('div', {class: 'panels'});
    panels.style.setProperty('--panel-width', width + 'px');
    if (report.layers.length === 1) {
        const layer = report.layers[0];
        panels.append(el('section', {}, grid('rel-L2 of every recipe and head', most,
            [{rows: byCost(layer.recipes).map(recipe => ({label: clean(recipe.recipe), cells: errorCells(layer, titles[0], recipe)}))}])));
        return fill(section, {}, [panels]);
    }
    for (const recipe of byCost(report.layers[0].recipes)) {
        const rows = report.layers.map((layer, index) => {
            const mine = layer.recipes.find(other => other.recipe === recipe.recipe);
            return {label: shortTitles[index], title: titles[index], href: '#layer-' + index, cells: errorCells(layer, titles[index], mine), worst: number(mine.worst_rel_l2)};
        });
        const missing = rows.filter(row => fails(row.worst)).length;
        panels.append(el('section', {},
            el('h3', {}, clean(recipe.recipe), el('small', {}, missing === 0 ? 'below ' + bound + ' in every layer' : 'misses ' + bound + ' in ' + (missing === rows.length ? 'every layer' : missing + ' of ' + plural(rows.length, 'layer')))),
            grid('rel-L2 of ' + clean(recipe.recipe) + ', layers by heads', most, [{rows}])));
    }
    return fill(section, {}, [panels]);
}

// --- A layer ----------------------------------------------------------------------------------

function settings(layer) {
    const open = layer.window.value[0] === -1 && layer.window.value[1] === -1;
    return clean(layer.shape.text) + '. softmax_scale ' + layer.softmax_scale.value + ' (' + layer.softmax_scale.source +
        '), causal ' + (layer.causal.value ? 'yes' : 'no') + ' (' + layer.causal.source + '), window ' +
        (open ? 'open' : layer.window.value.join(', ')) + ' (' + layer.window.source + '). ' +
        layer.rows_compared + ' of ' + layer.shape.tokens_q * layer.shape.batch + ' query rows compared in each head.';
}

function recipeTable(layer) {
    const head = ['Recipe', 'rel-L2', 'worst head', '', 'cosine', 'largest error', 'LSE error', 'ms'];
    const rows = byCost(layer.recipes).map(recipe => el('tr', {class: recipe.recipe === layer.recommendation.recipe ? 'chosen' : null},
        el('th', {scope: 'row'}, clean(recipe.recipe)),
        [full(recipe.rel_l2), full(recipe.worst_rel_l2), 'head ' + recipe.worst_heads[0], number(recipe.cosine).toFixed(6), full(recipe.max_error), full(recipe.lse_error),
            number(recipe.time_ms) < 1 ? digits(recipe.time_ms, 2) : number(recipe.time_ms).toFixed(1)].map((text, i) =>
            el('td', {class: i === 2 ? 'dim whole' : i === 1 && fails(recipe.worst_rel_l2) ? 'n miss' : 'n', 'data-title': head[i + 1] || 'which'}, text))));
    return el('figure', {}, el('h4', {}, 'Recipes'),
        el('figcaption', {}, 'rel-L2 and cosine: means over the heads. Largest error: of a single number, where the exact results have an rms of ' + full(layer.exact.rms) + ' and are at most ' + full(layer.exact.largest) +
            '. LSE error: of the logarithm of a row’s softmax sum, so .01 is 1 % of the sum. ms: all rows, on this device, which is not the GPU that you may want it for.'),
        scroller('Recipes', el('table', {class: 'rows recipes'},
            el('thead', {}, el('tr', {}, head.map((text, i) => el('th', {scope: 'col', class: i === 0 || i === 3 ? null : 'n'}, text)))),
            el('tbody', {}, rows))));
}

function power(exponent) { return exponent === 0 ? '1' : exponent === 1 ? '10' : exponent === -1 ? '0.1' : exponent === -2 ? '0.01' : '1e' + exponent; }

// Bars: rows by error; ticks below: heads.
function histogram(layer) {
    const edges = report.row_error_edges.map(number);
    const recipes = byCost(layer.recipes);
    const used = new Set();
    for (const recipe of recipes) recipe.row_errors.counts.forEach((count, i) => { if (count > 0) used.add(i); });
    // Bin i lies below edge i. The axis is whole bins, with the bound inside.
    const position = x => (Math.log10(x) - Math.log10(edges[0])) * (edges.length - 1) / (Math.log10(edges.at(-1)) - Math.log10(edges[0])) + 1;
    const last = Math.min(Math.max(...used, Math.ceil(position(bound)) + 1), edges.length);
    const first = Math.max(Math.min(...used, Math.floor(position(bound)) - 1), 0);
    const left = 72, right = 318, top = 16, step = 42, bar = 26;
    const unit = (right - left) / (last - first + 1);
    const at = x => left + (Math.min(Math.max(position(Math.max(x, 1e-30)), first), last + 1) - first) * unit;
    const height = top + recipes.length * step + 22;
    const drawing = svg('svg', {viewBox: '0 0 320 ' + height, width: 320, height, role: 'img', 'aria-label': 'Rows by relative error: ' +
        recipes.map(recipe => clean(recipe.recipe) + ' median ' + full(recipe.row_errors.median) + ', 95 % below ' + full(recipe.row_errors.p95)).join('; ')});
    for (let e = -5; e <= 1; ++e) {
        const x = at(10 ** e);
        if (position(10 ** e) < first || position(10 ** e) > last + 1) continue;
        drawing.append(svg('line', {class: 'rule', x1: x, x2: x, y1: top, y2: height - 18}), svg('text', {x, y: height - 5, 'text-anchor': 'middle'}, power(e)));
    }
    recipes.forEach((recipe, row) => {
        const base = top + row * step + bar + 4;
        const most = Math.max(...recipe.row_errors.counts);
        recipe.row_errors.counts.forEach((count, i) => {
            if (count === 0) return;
            const h = Math.max(bar * count / most, 1);
            drawing.append(svg('rect', {class: 'mark', x: (left + (i - first) * unit + .5).toFixed(1), y: (base - h).toFixed(1), width: Math.max(unit - 1, 1).toFixed(1), height: h.toFixed(1)}));
        });
        drawing.append(svg('line', {class: 'rule', x1: left, x2: right, y1: base, y2: base}), svg('text', {class: 'name', x: 0, y: base - 13}, clean(recipe.recipe)),
            svg('text', {x: 0, y: base}, full(recipe.row_errors.median)));
        for (const head of recipe.heads) {
            const x = number(head.rel_l2);
            if (Number.isFinite(x)) drawing.append(svg('line', {class: 'head', x1: at(x), x2: at(x), y1: base + 1, y2: base + 7}));
        }
    });
    drawing.append(svg('line', {class: 'bound', x1: at(bound), x2: at(bound), y1: top - 4, y2: height - 18}),
        svg('text', {class: 'boundtext', x: at(bound), y: top - 7, 'text-anchor': 'middle'}, 'bound ' + bound));
    const lines = [];
    for (let i = first; i <= last; ++i) {
        const from = i === 0 ? '0' : digits(edges[i - 1], 2);
        const to = i === edges.length ? '∞, NaN' : digits(edges[i], 2);
        lines.push(el('tr', {}, el('th', {scope: 'row'}, from + ' – ' + to), recipes.map(recipe => el('td', {class: 'n'}, String(recipe.row_errors.counts[i])))));
    }
    return el('figure', {class: 'histogram'}, el('h4', {}, 'Error of single rows'),
        el('figcaption', {}, 'Bars: rows of all heads by their relative L2 error; the number is the median. Ticks below: heads.'), drawing,
        el('details', {class: 'more'}, el('summary', {}, 'Rows in numbers'), scroller('Rows by error', el('table', {class: 'rows counts'},
            el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'error'), recipes.map(recipe => el('th', {scope: 'col', class: 'n'}, clean(recipe.recipe))))),
            el('tbody', {}, ['median', 'p95', 'max'].map(key => el('tr', {}, el('th', {scope: 'row'}, {median: 'median', p95: '95 % below', max: 'largest'}[key]), recipes.map(recipe => el('td', {class: 'n'}, full(recipe.row_errors[key]))))), lines)))));
}

// Rows of bars under the errors: a column is a head everywhere, so that a cause stands below its effect.
function strip(layer, title) {
    const heads = layer.shape.heads;
    const group = heads / layer.shape.heads_kv;
    const finite = values => values.filter(Number.isFinite);
    const who = (operand, index) => title + (operand === 'q' || group === 1 ? ', head ' + index : ', KV head ' + index + ' (heads ' + index * group + ' to ' + (index * group + group - 1) + ')');

    // From the bottom up, in percent of the cell.
    const bars = (operand, values, text, describe) => {
        const top = Math.max(...finite(values), 0) || 1;
        return values.map((x, index) => {
            const share = Number.isFinite(x) ? 60 * x / top : 60;
            return {text: text(x), className: 'bars', span: operand === 'q' ? 1 : group,
                style: 'linear-gradient(to top, var(--accent-soft) ' + share.toFixed(1) + '%, var(--panel) ' + share.toFixed(1) + '%)',
                tip: () => who(operand, index) + '\n' + describe(index)};
        });
    };
    const ranges = operand => {
        const stats = layer.inputs[operand];
        const min = stats.min.map(number), max = stats.max.map(number), rms = stats.rms.map(number);
        const low = Math.min(...finite(min), 0), high = Math.max(...finite(max), 0);
        const size = high - low || 1;
        return min.map((_, index) => {
            // The bar keeps to the lower part of the cell; the number stands above it.
            const at = x => (4 + 56 * (Math.min(Math.max(x, low), high) - low) / size).toFixed(1) + '%';
            const largest = Math.max(Math.abs(min[index]), Math.abs(max[index]));
            const stops = [['var(--panel)', '0%', at(min[index])], ['var(--accent-soft)', at(min[index]), at(Math.max(-rms[index], min[index]))],
                ['var(--accent)', at(Math.max(-rms[index], min[index])), at(Math.min(rms[index], max[index]))],
                ['var(--accent-soft)', at(Math.min(rms[index], max[index])), at(max[index])], ['var(--panel)', at(max[index]), '100%']];
            return {text: brief(largest), className: 'bars', span: operand === 'q' ? 1 : group,
                style: Number.isFinite(largest) ? 'linear-gradient(to top, ' + stops.map(s => s.join(' ')).join(', ') + ')' : null,
                tip: () => who(operand, index) + '\n' + operand.toUpperCase() + ' from ' + full(min[index]) + ' to ' + full(max[index]) + '\nrms ' + full(rms[index]) + ', largest / rms ' + full(largest / rms[index])};
        });
    };
    const names = ['q', 'k', 'v'];
    const column = (operand, key) => layer.inputs[operand][key].map(number);
    return el('figure', {class: 'strip'}, el('h4', {}, 'What the heads are like'),
        el('figcaption', {}, 'One column a head' + (group > 1 ? '; K and V are shared by ' + group + ' heads each' : '') + '. Each row of bars has its own scale. Range: pale from the smallest to the largest value, dark ± rms.'),
        grid('What the heads are like: ' + title, heads, [
            {title: 'Error, rel-L2', rows: byCost(layer.recipes).map(recipe => ({label: clean(recipe.recipe), cells: errorCells(layer, title, recipe)}))},
            {title: 'Mass in light keys, %', rows: [
                {label: 'mean of rows', cells: bars('q', layer.light_mass.map(x => number(x.mean)), briefPercent, i => 'mass in light keys, mean ' + percent(layer.light_mass[i].mean))},
                {label: 'largest row', cells: bars('q', layer.light_mass.map(x => number(x.max)), briefPercent, i => 'mass in light keys, largest row ' + percent(layer.light_mass[i].max))}]},
            {title: 'Range, and largest |x|', rows: names.map(name => ({label: name.toUpperCase(), cells: ranges(name)}))},
            {title: 'Power in channel means, %', rows: names.map(name => ({label: name.toUpperCase(),
                cells: bars(name, column(name, 'mean_share'), briefPercent, i => 'channel means: ' + percent(layer.inputs[name].mean_share[i]) + ' of the power of ' + name.toUpperCase())}))},
            {title: 'Largest channel / median channel', rows: names.map(name => ({label: name.toUpperCase(),
                cells: bars(name, column(name, 'outlier'), brief, i => 'the largest channel of ' + name.toUpperCase() + ' is ' + full(layer.inputs[name].outlier[i]) + ' times the median channel')}))},
        ]));
}

// Range and mean of each channel of one head.
function channelChart(operand, entry) {
    const min = entry.min.map(number), max = entry.max.map(number), mean = entry.mean.map(number);
    const count = mean.length;
    const left = 44, right = 316, top = 8, bottom = 108;
    const finite = min.every(Number.isFinite) && max.every(Number.isFinite);
    const low = finite ? Math.min(...min, 0) : -1, high = finite ? Math.max(...max, 0) : 1;
    const unit = (right - left) / count;
    const y = v => (bottom - (bottom - top) * (v - low) / (high - low || 1)).toFixed(1);
    const largest = values => values.reduce((best, v, i) => Math.abs(v) > Math.abs(values[best]) ? i : best, 0);
    const outer = min.map((v, i) => Math.abs(v) > Math.abs(max[i]) ? v : max[i]);
    const text = finite ? 'Largest value ' + full(outer[largest(outer)]) + ' in channel ' + largest(outer) + '; largest mean ' + full(mean[largest(mean)]) + ' in channel ' + largest(mean) + '.' : 'Not all values are finite.';
    const name = operand.toUpperCase() + ' of head ' + entry.head;
    const drawing = svg('svg', {viewBox: '0 0 320 126', width: 320, height: 126, role: 'img', 'aria-label': name + ', channel by channel. ' + text});
    for (const v of [low, 0, high]) {
        if (v === 0 || Math.abs(v) > .12 * (high - low)) drawing.append(svg('text', {x: left - 5, y: +y(v) + 4, 'text-anchor': 'end'}, brief(v)));
        drawing.append(svg('line', {class: 'rule', x1: left, x2: right, y1: y(v), y2: y(v)}));
    }
    if (finite) {
        const step = i => (left + i * unit).toFixed(1);
        let outline = '', line = '';
        for (let i = 0; i < count; ++i) {
            outline += (i === 0 ? 'M' : 'L') + step(i) + ' ' + y(max[i]) + 'H' + step(i + 1);
            line += (i === 0 ? 'M' : 'V') + (i === 0 ? step(0) + ' ' : '') + y(mean[i]) + 'H' + step(i + 1);
        }
        // Down the right side, and back along the minima.
        for (let i = count - 1; i >= 0; --i) outline += 'L' + step(i + 1) + ' ' + y(min[i]) + 'H' + step(i);
        drawing.append(svg('path', {class: 'soft', d: outline + 'Z'}), svg('path', {class: 'mean', d: line}));
    }
    for (const [i, anchor] of [[0, 'start'], [count - 1, 'end']]) drawing.append(svg('text', {x: i === 0 ? left : right, y: 122, 'text-anchor': anchor}, i === 0 ? 'channel 0' : String(i)));
    drawing.addEventListener('pointermove', event => {
        const box = drawing.getBoundingClientRect();
        const i = Math.floor(((event.clientX - box.left) * 320 / box.width - left) / unit);
        if (i < 0 || i >= count) return hideTip();
        showTip(drawing, name + ', channel ' + i + '\nfrom ' + full(min[i]) + ' to ' + full(max[i]) + '\nmean ' + full(mean[i]), event.clientX, event.clientY);
    });
    drawing.addEventListener('pointerleave', hideTip);
    return el('div', {class: 'channel'}, el('h4', {}, name), drawing, el('p', {class: 'dim small'}, text));
}

// In what a head differs from the layer's middle head; no claim that it is the cause.
function standsOut(layer, head) {
    const kv = Math.floor(head * layer.shape.heads_kv / layer.shape.heads);
    const lists = [['mass in light keys', layer.light_mass.map(x => number(x.mean)), percent, head, .001]];
    for (const operand of ['q', 'k', 'v']) {
        const name = operand.toUpperCase();
        const stats = layer.inputs[operand];
        const own = operand === 'q' ? head : kv;
        lists.push(['power of ' + name + ' in channel means', stats.mean_share.map(number), percent, own, .05],
            [name + '’s largest / median channel', stats.outlier.map(number), full, own, 0],
            [name + '’s largest value / rms', stats.rms.map((rms, i) => Math.max(Math.abs(number(stats.min[i])), Math.abs(number(stats.max[i]))) / number(rms)), full, own, 0]);
    }
    const found = lists.map(([name, values, format, own, least]) => {
        const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
        const middle = sorted[Math.floor((sorted.length - 1) / 2)];
        return {name, value: values[own], middle, ratio: values[own] / middle, format, least};
    }).filter(m => m.ratio >= 1.5 && m.value >= m.least).sort((a, b) => b.ratio - a.ratio).slice(0, 3);
    return 'Head ' + head + (found.length === 0 ? ' is much like the layer’s other heads.'
        : ' stands out by ' + found.map(m => m.name + ' ' + m.format(m.value) + ' (middle head ' + m.format(m.middle) + ')').join(', ') + '.');
}

function channels(layer, index) {
    const group = layer.shape.heads / layer.shape.heads_kv;
    const heads = layer.inputs.q.channels.map(entry => entry.head);
    // The head that decides: the worst one of the dearest recipe that was rejected.
    const rejected = layer.recommendation.rejected;
    const chosen = rejected.length > 0 ? rejected.at(-1).head : byCost(layer.recipes).at(-1).worst_heads[0];
    const select = el('select', {id: 'head-' + index, autocomplete: 'off'}, heads.map(head => el('option', {value: head, selected: head === chosen ? '' : null}, String(head))));
    const charts = el('div', {class: 'charts'});
    const remark = el('p', {class: 'small remark'});
    const draw = () => {
        const head = Number(select.value);
        hideTip();
        remark.textContent = standsOut(layer, head);
        charts.replaceChildren(...['q', 'k', 'v'].map(operand => channelChart(operand,
            layer.inputs[operand].channels.find(entry => entry.head === (operand === 'q' ? head : Math.floor(head / group))))));
    };
    select.addEventListener('change', draw);
    draw();
    const hidden = layer.shape.heads - heads.length;
    return el('figure', {class: 'channels'}, el('h4', {}, 'Channels of one head'),
        el('figcaption', {}, 'Pale: from the smallest to the largest value of each channel, over all tokens. Line: its mean. A channel far out takes the range of a scale from the others.'),
        el('p', {class: 'pick'}, el('label', {for: 'head-' + index}, 'Head '), select, el('span', {class: 'dim small'}, hidden > 0 ? ' of each recipe the worst head, and a middle one' : '')), remark, charts);
}

function layerSection(layer, index) {
    const body = el('div', {class: 'body'});
    const recommended = layer.recommendation.recipe;
    const section = el('details', {class: 'layer', id: 'layer-' + index},
        el('summary', {}, el('h3', {}, breakable(titles[index])), chip(recommended), el('span', {class: 'dim small'}, plural(layer.shape.heads, 'head') + ' of ' + layer.shape.head_dim)), body);
    const draw = () => {
        if (body.firstChild) return;
        fill(body, {}, [el('p', {class: 'facts'}, settings(layer)), layer.notes.map(note => el('p', {class: 'note'}, clean(note))),
            el('p', {}, clean(layer.recommendation.sentence)),
            el('div', {class: 'columns'}, recipeTable(layer), histogram(layer), strip(layer, titles[index]), channels(layer, index))]);
    };
    section.addEventListener('toggle', () => { if (section.open) draw(); });
    section.draw = draw;
    if (report.layers.length < kOpenLayers) { section.open = true; draw(); }
    return section;
}

// --- Bottom -----------------------------------------------------------------------------------

function guide() {
    const entries = [
        ['Recipe', 'Attention multiplies queries Q with keys K, turns the scores into weights P by a softmax, and multiplies these with the values V. A recipe says in which format each of Q, K, P and V is rounded, and how many numbers share a scale.'],
        ['Head, row', 'A layer has several heads, each with Q, K and V of its own (K and V may be shared). A row is the result for one query of one head.'],
        ['rel-L2', '|o − r| / |r|, over the rows compared of a head and all channels; o is the recipe, r exact attention in fp64. On N(0,1) data int8_fp8 has .039, fp8 .053, nvfp4_fp8 .14, nvfp4 .19.'],
        ['Bound', boundText()],
        ['Cosine', 'o·r / (|o| |r|): 1 where the result has the direction of the exact one.'],
        ['Largest error, LSE error', 'The largest |o − r| of a single number, to be seen beside the exact results’ rms and largest value, which stand above each table; the largest difference of a row’s log-sum-exp (natural logarithm).'],
        ['Cheap and dear', 'From cheap to dear: nvfp4, nvfp4_fp8, fp8 = fp8_head, int8_fp8, bf16 = f16: the order of tensor-core rates, not of the times measured here.'],
        ['Mass in light keys', 'The share of a row’s softmax mass in keys that lie 2⁻¹¹ or more below the largest of their aligned 64 keys. FP8 codes of P keep those badly.'],
        ['Channel means', 'Recipes take the mean of each channel out of K and V and put back what it does to the result. Q keeps its means: where they are much of its power, 4- and 8-bit recipes lose accuracy.'],
        ['Largest channel', 'A scale covers several channels of a token. Where one channel is far larger than the others, they are left with few codes.'],
    ];
    return el('section', {id: 'guide'}, el('h2', {}, 'How to read it'), el('dl', {}, entries.map(([term, text]) => [el('dt', {}, term), el('dd', {}, text)])));
}

// As a shell would have it.
function quoted(word) { return /^[A-Za-z0-9_.,:\/=+@%-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'"; }

function footer() {
    const m = report.machine;
    const plan = report.layers[0].recipes[0];
    const entries = [
        ['Command', el('code', {id: 'command'}, clean(report.command.map(quoted).join(' ')))],
        ['File', clean(report.file)],
        ['Machine', [m.cpu, plural(m.cores, 'core'), m.features].filter(Boolean).map(clean).join('; ')],
        ['System', [m.system, m.architecture].filter(Boolean).map(clean).join(', ')],
        ['Device', clean(report.device) + ', ' + plural(plan.threads, 'thread')],
        ['Rows', 'up to ' + report.rows + ' in each head, chosen with seed ' + report.seed],
        ['Versions', 'quatt ' + clean(report.quatt_version) + ', ' + clean(report.compiler) + '; data ' + report.schema + ' version ' + report.version],
        ['Made', clean(report.created)],
    ];
    return el('footer', {id: 'foot'}, el('dl', {}, entries.map(([term, text]) => [el('dt', {}, term), el('dd', {}, text)])));
}

const notes = report.notes.map(note => el('p', {class: 'note'}, clean(note)));
const sections = report.layers.map(layerSection);
page.append(header(), verdict(), ...notes, recommendations(), recipeNames(), heatMap(),
    el('section', {id: 'layers'}, el('h2', {}, report.layers.length > 1 ? 'Layer by layer' : 'The layer'), sections), guide(), footer());
page.hidden = false;
document.getElementById('plain').hidden = true;

function openTarget() {
    const target = location.hash.startsWith('#layer-') && document.getElementById(location.hash.slice(1));
    if (target) {
        target.open = true;
        target.draw();
        target.scrollIntoView();
    }
}
addEventListener('hashchange', openTarget);
openTarget();
})();
