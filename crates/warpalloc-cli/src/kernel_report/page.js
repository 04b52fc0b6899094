'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const code = data.code || data.machine || { first_line: 1, lines: [], rows: emptyRows(), values: [], peak: null };
  const isPtx = Boolean(data.code);
  code.values.forEach((value, at) => { value.at = at; });
  const rows = code.rows;
  const count = rows.line.length;
  const find = (selector) => document.querySelector(selector);
  const SVG = 'http://www.w3.org/2000/svg';

  /* What is chosen. `row` is the instruction that is looked at. */
  const state = { cap: 0, allocator: 0, row: code.peak === null ? 0 : code.peak, beside: null };

  function emptyRows() {
    return { line: [], number: [], registers: [], position: [], loop_depth: [], source: [], ptx_line: [] };
  }

  /* An element; text is never markup. */
  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    return filled(made, attributes, children);
  }
  function drawn(tag, attributes, ...children) {
    const made = document.createElementNS(SVG, tag);
    return filled(made, attributes, children);
  }
  function filled(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) made.append(child);
    }
    return made;
  }
  const number = (value, digits = 0) => value.toLocaleString('en', { maximumFractionDigits: digits });
  const counted = (value, word) => `${number(value)} ${word}${value === 1 ? '' : 's'}`;

  /* ---- what is known of lines ---- */

  /** By line of the listing, its first row; -1 where none is. */
  const rowOfLine = new Int32Array(code.lines.length).fill(-1);
  for (let row = count - 1; row >= 0; row--) rowOfLine[rows.line[row]] = row;
  /** By number of an instruction, the row that shows it. */
  const rowOfNumber = (() => {
    const last = count ? rows.number[count - 1] : 0;
    const table = new Int32Array(last + 2);
    let row = 0;
    for (let at = 0; at <= last; at++) {
      while (row < count - 1 && rows.number[row] < at) row++;
      table[at] = row;
    }
    table[last + 1] = count;
    return table;
  })();
  const most = rows.registers.reduce((a, b) => Math.max(a, b), 0);
  const lineNumber = (line) => code.first_line + line;
  const rowAtOrAfter = (line) => {
    for (let at = line; at < code.lines.length; at++) if (rowOfLine[at] >= 0) return rowOfLine[at];
    return Math.max(0, count - 1);
  };
  const cap = () => data.caps[state.cap];
  const trial = () => (cap() ? cap().allocators[state.allocator] : undefined);

  /* ---- the head ---- */

  function head() {
    find('#name').textContent = data.name;
    const launch = data.launch;
    const block = `blocks of ${launch.block} threads${launch.assumed ? ' (assumed)' : ''}`;
    const shared = launch.shared_bytes ? `${number(launch.shared_bytes)} bytes of shared memory` : 'no shared memory';
    find('#about').textContent = [data.file, data.arch, block, shared].join(' · ');
    const tiles = [];
    if (data.taken) tiles.push(['Registers', number(data.taken.registers), '', `by ${data.taken.by}`]);
    if (count) {
      const line = lineNumber(rows.line[code.peak]);
      tiles.push(['Live at the peak', number(most), 'registers', isPtx ? `at line ${line}` : `at instruction ${line}`]);
    }
    if (data.occupancy) {
      const { warps, max_warps: all, percent, limiters } = data.occupancy;
      tiles.push(['Warps', number(warps), `of ${all}`, `${number(percent, 1)} %, limited by ${limiters.join(' and ') || 'nothing'}`]);
    }
    if (data.taken) tiles.push(['Local memory', number(data.taken.frame_bytes), 'bytes', data.taken.frame_bytes ? 'spills and arrays of each thread' : 'nothing is spilled']);
    if (count) tiles.push(['Instructions', number(count), '', isPtx ? 'of PTX' : 'of machine code']);
    find('#tiles').append(...tiles.map(([name, figure, unit, about]) => element('div', null,
      element('dt', null, name),
      element('dd', { class: 'figure' }, figure, unit ? element('small', null, ` ${unit}`) : null),
      element('dd', null, about))));
    if (data.suggestions.length) {
      find('#help').hidden = false;
      find('#help ul').append(...data.suggestions.map(suggestion));
    }
    if (data.notes.length) {
      find('#notes').hidden = false;
      find('#notes ul').append(...data.notes.map((note) => element('li', null, note)));
    }
  }

  /** What is between backquotes is code. */
  function prose(text) {
    return text.split('`').map((part, at) => (at % 2 ? element('code', null, part) : part));
  }

  function suggestion({ what, registers: [was, is], effect }) {
    const saved = was === is ? counted(is, 'register') : `${number(was)} → ${counted(is, 'register')}`;
    return element('li', null, prose(what), element('span', { class: 'dim' }, `${saved}, ${effect.replace(' -> ', ' → ')}`));
  }

  function theme() {
    const button = find('#theme');
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? 'dark' : 'light')) === 'dark';
    const tell = () => { button.textContent = isDark() ? 'Light' : 'Dark'; };
    button.setAttribute('aria-label', 'Switch between light and dark');
    button.addEventListener('click', () => {
      document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
      tell();
    });
    dark.addEventListener('change', tell);
    tell();
  }

  /* ---- caps ---- */

  const isMade = (made) => made.reason === undefined;
  const isOurs = (made) => isMade(made) && made.cycles !== undefined;

  /** The allocator that adds the fewest cycles. */
  function best(within) {
    let found = -1;
    within.allocators.forEach((made, at) => {
      if (isOurs(made) && (found < 0 || made.cycles < within.allocators[found].cycles)) found = at;
    });
    return found;
  }

  function capChoices() {
    const chips = data.caps.map((within, at) => {
      const least = within.allocators[best(within)];
      const spills = least === undefined ? null
        : least.stores + least.reloads ? element('span', { class: 'spills' }, `${number(least.cycles)} cycles`)
          : element('span', { class: 'free' }, 'no spill');
      const input = element('input', { type: 'radio', name: 'cap', value: at, checked: at === state.cap });
      input.addEventListener('change', () => chooseCap(at));
      return element('label', null, input,
        element('b', null, within.cap === null ? 'as it is' : String(within.cap)),
        within.warps === null ? null : element('span', null, counted(within.warps, 'warp')), spills);
    });
    find('#cap-choices .chips').append(...chips);
    if (data.caps.every((within) => !within.allocators.length)) {
      // Of machine code alone there is nothing to choose.
      find('#cap-choices').hidden = true;
      find('#caps-title').textContent = 'Occupancy';
    }
    find('#caps').hidden = !data.cliffs.length && data.caps.every((within) => !within.allocators.length);
  }

  function chooseCap(at) {
    state.cap = at;
    state.allocator = Math.max(0, best(cap()));
    capChanged();
  }

  function capChanged() {
    marks = marksOf(trial());
    allocators();
    told();
    occupancy();
    curve();
    legend();
    spilled();
    steps();
    codeList.draw(true);
    scheduleRanges();
    remember();
  }

  function told() {
    const within = cap();
    if (!within) return;
    const made = trial();
    const warps = within.warps;
    const now = data.occupancy ? data.occupancy.warps : null;
    const parts = [];
    if (within.cap === null) {
      if (data.taken) parts.push(`As it is, the kernel takes ${counted(data.taken.registers, 'register')}`, warps === null ? '.' : `, and ${counted(warps, 'warp')} of ${data.max_warps} are resident.`);
      if (isPtx && data.caps.length === 1 && data.cliffs.length) parts.push(' No step of occupancy is within reach of a cap.');
    } else {
      parts.push(`Within ${counted(within.cap, 'register')}`);
      if (warps !== null) parts.push(`, ${counted(warps, 'warp')} of ${data.max_warps} are resident`, now !== null && now !== warps ? ` instead of ${now}` : '');
      parts.push('.');
    }
    if (made && isOurs(made)) {
      if (made.stores + made.reloads) {
        parts.push(` ${made.name} spills ${counted(made.values.length, 'value')} to ${counted(made.frame_bytes, 'byte')} of memory: ${counted(made.stores, 'store')} and ${counted(made.reloads, 'reload')}, ${counted(Math.round(made.cycles), 'cycle')} more in a run.`);
      } else if (within.cap !== null) {
        parts.push(` ${made.name} fits it in without a spill${made.recomputes ? `, and computes ${counted(made.recomputes, 'value')} again` : ''}.`);
      }
    }
    find('#told').textContent = parts.join('');
  }

  const COLUMNS = [
    ['registers', (m) => number(m.registers)],
    ['stores', (m) => (m.stores === undefined ? '' : number(m.stores))],
    ['reloads', (m) => (m.reloads === undefined ? '' : number(m.reloads))],
    ['local accesses', (m) => (m.local_accesses === undefined ? number(m.stores + m.reloads) : m.local_accesses === null ? '?' : number(m.local_accesses))],
    ['frame bytes', (m) => number(m.frame_bytes)],
    ['computed again', (m) => (m.recomputes === undefined ? '' : number(m.recomputes))],
    ['cycles added', (m) => (m.cycles === undefined ? '' : number(m.cycles)), 'cycles'],
    ['time over as it is', (m) => (m.cycles_over ? `× ${m.cycles_over.full.toFixed(2)}` : '')],
  ];

  function allocators() {
    const within = cap();
    const place = find('#allocators');
    if (!within || !within.allocators.length) { place.hidden = true; return; }
    const asked = within.allocators.some((made) => made.cycles_over);
    const columns = COLUMNS.filter(([name]) => asked || name !== 'time over as it is');
    const winner = best(within);
    const lines = within.allocators.map((made, at) => {
      const input = element('input', { type: 'radio', name: 'allocator', value: at, checked: at === state.allocator, disabled: !isOurs(made) });
      input.addEventListener('change', () => { state.allocator = at; capChanged(); find(`#allocators input[value="${at}"]`).focus(); });
      const name = element('th', { scope: 'row' }, element('label', null, input, made.name));
      const cells = isMade(made)
        ? columns.map(([, of, style]) => element('td', { class: style }, of(made)))
        : [element('td', { class: 'why', colspan: columns.length }, made.reason)];
      return element('tr', { class: at === winner && within.cap !== null ? 'best' : null }, name, cells);
    });
    place.replaceChildren(element('table', null,
      element('thead', null, element('tr', null, element('th', { scope: 'col' }, 'allocator'),
        columns.map(([name, , style]) => element('th', { scope: 'col', class: style }, name)))),
      element('tbody', null, lines)));
  }

  function spilled() {
    const made = trial();
    const place = find('#spilled');
    const values = made && isOurs(made) ? made.values : [];
    place.hidden = !values.length;
    if (!values.length) return;
    place.firstElementChild.textContent = `What ${made.name} spills within ${cap().cap === null ? 'all registers' : counted(cap().cap, 'register')}: ${counted(values.length, 'value')}`;
    place.lastElementChild.textContent = values.map((value) => (value.registers > 1 ? `${value.name}×${value.registers}` : value.name)).join('  ');
  }

  /* ---- drawing ---- */

  function scaled(svg, height) {
    const width = Math.max(240, svg.getBoundingClientRect().width || svg.parentElement.clientWidth || 600);
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    return width;
  }

  function occupancy() {
    const svg = find('#occupancy');
    if (!data.cliffs.length) { svg.parentElement.hidden = true; return; }
    const height = 190;
    const width = scaled(svg, height);
    const [left, right, top, bottom] = [30, width - 10, 14, height - 24];
    const x = (registers) => left + (right - left) * registers / 255;
    const y = (warps) => bottom - (bottom - top) * warps / data.max_warps;
    const parts = [];
    for (let part = 0; part <= 4; part++) {
      const warps = data.max_warps * part / 4;
      parts.push(drawn('path', { class: 'grid', d: `M${left} ${y(warps)}H${right}` }),
        drawn('text', { x: left - 6, y: y(warps) + 4, 'text-anchor': 'end' }, String(warps)));
    }
    for (let registers = 0; registers <= 255; registers += 64) {
      parts.push(drawn('text', { x: x(registers), y: bottom + 18, 'text-anchor': 'middle' }, String(registers)));
    }
    let path = '';
    for (const step of data.cliffs) path += `${path ? 'L' : 'M'}${x(step.first_registers - 1)} ${y(step.warps)}H${x(step.last_registers)}`;
    parts.push(drawn('path', { class: 'under', d: `${path}V${bottom}H${left}Z` }), drawn('path', { class: 'stair', d: path }));
    data.caps.forEach((within, at) => {
      if (within.cap === null || within.warps === null) return;
      const dot = drawn('circle', { class: at === state.cap ? 'choice' : 'stair', cx: x(within.cap), cy: y(within.warps), r: at === state.cap ? 6 : 3 });
      parts.push(dot);
    });
    if (data.taken && data.occupancy) {
      const at = [x(Math.min(255, data.taken.registers)), y(data.occupancy.warps)];
      const side = at[0] > left + (right - left) * 0.62 ? ['end', -10] : ['start', 10];
      parts.push(drawn('circle', { class: 'now', cx: at[0], cy: at[1], r: 6 }),
        drawn('text', { class: 'strong', x: at[0] + side[1], y: at[1] - 8, 'text-anchor': side[0] }, `now: ${data.taken.registers}, ${data.occupancy.warps} warps`));
      svg.setAttribute('aria-label', `Warps resident over registers per thread; now ${data.taken.registers} registers and ${data.occupancy.warps} of ${data.max_warps} warps`);
    }
    svg.replaceChildren(...parts);
  }

  /** Lines with inserted code, by kind. */
  function marksOf(made) {
    const found = { by: new Map(), lines: [] };
    if (!made || !isOurs(made)) return found;
    for (const kind of ['stores', 'reloads', 'recomputes']) {
      for (const [line, times] of made.at[kind]) {
        const here = found.by.get(line) || { stores: 0, reloads: 0, recomputes: 0 };
        here[kind] += times;
        found.by.set(line, here);
      }
    }
    found.lines = [...found.by.entries()].filter(([, here]) => here.stores + here.reloads).map(([line]) => line).sort((a, b) => a - b);
    return found;
  }
  let marks = marksOf(undefined);

  const chart = { left: 38, right: 0, top: 12, bottom: 0, height: 230 };
  const rowX = (row) => chart.left + (chart.right - chart.left) * row / Math.max(1, count);

  function curve() {
    const place = find('#curve');
    if (!count) { place.hidden = true; return; }
    const svg = place.firstElementChild;
    const width = scaled(svg, chart.height);
    chart.right = width - 34;
    chart.bottom = chart.height - 26;
    const limit = cap() ? cap().cap : null;
    const top = Math.ceil(Math.max(most, limit || 0, 8) / 16) * 16;
    const y = (live) => chart.bottom - (chart.bottom - chart.top) * live / top;
    const parts = [];
    parts.push(...loops());
    for (let part = 0; part <= 4; part++) {
      const live = top * part / 4;
      parts.push(drawn('path', { class: 'grid', d: `M${chart.left} ${y(live)}H${chart.right}` }),
        drawn('text', { x: chart.left - 6, y: y(live) + 4, 'text-anchor': 'end' }, String(live)));
    }
    // One step for each pixel: the most of the rows it stands for.
    const pixels = Math.max(1, Math.min(count, Math.floor(chart.right - chart.left)));
    let path = '';
    for (let at = 0; at < pixels; at++) {
      const [from, to] = [Math.floor(at * count / pixels), Math.floor((at + 1) * count / pixels)];
      let live = 0;
      for (let row = from; row < to; row++) live = Math.max(live, rows.registers[row]);
      path += `${path ? 'L' : 'M'}${rowX(from).toFixed(1)} ${y(live).toFixed(1)}H${rowX(to).toFixed(1)}`;
    }
    const area = `${path}V${chart.bottom}H${chart.left}Z`;
    parts.push(drawn('path', { class: 'area', d: area }));
    if (limit !== null && limit < most) {
      parts.push(drawn('clipPath', { id: 'above' }, drawn('rect', { x: 0, y: 0, width, height: y(limit) })),
        drawn('path', { class: 'over', d: area, 'clip-path': 'url(#above)' }));
    }
    parts.push(drawn('path', { class: 'edge', d: path }));
    if (limit !== null) {
      parts.push(drawn('path', { class: 'cap', d: `M${chart.left} ${y(limit)}H${chart.right}` }),
        drawn('text', { class: 'cap-name', x: chart.right + 5, y: y(limit) + 4 }, String(limit)));
    }
    parts.push(ticks('mark-again', (here) => here.recomputes, 12), ticks('mark-store', (here) => here.stores + here.reloads, 5));
    parts.push(drawn('text', { x: chart.left, y: chart.height - 2 }, isPtx ? `line ${lineNumber(rows.line[0])}` : '0'),
      drawn('text', { x: chart.right, y: chart.height - 2, 'text-anchor': 'end' }, isPtx ? `line ${lineNumber(rows.line[count - 1])}` : `instruction ${count}`));
    parts.push(drawn('path', { class: 'cursor', d: '' }));
    svg.replaceChildren(...parts);
    place.setAttribute('aria-valuemax', String(count - 1));
    cursor();
  }

  /** Bands behind the curve, one for each run of rows in loops. */
  function loops() {
    const bands = [];
    for (let row = 0; row < count;) {
      const depth = rows.loop_depth[row];
      let end = row + 1;
      while (end < count && rows.loop_depth[end] === depth) end++;
      if (depth > 0) bands.push(drawn('rect', { class: 'loop', x: rowX(row), y: chart.top, width: Math.max(1, rowX(end) - rowX(row)), height: chart.bottom - chart.top }));
      row = end;
    }
    return bands;
  }

  /** One path for all marks of a kind, at most one stroke for each pixel. */
  function ticks(style, wanted, length) {
    const taken = new Set();
    for (const [line, here] of marks.by) {
      if (wanted(here) && rowOfLine[line] >= 0) taken.add(Math.round(rowX(rowOfLine[line])));
    }
    const path = [...taken].map((x) => `M${x} ${chart.bottom + 1}v${length}`).join('');
    return drawn('path', { class: style, d: path });
  }

  function cursor() {
    const place = find('#curve');
    const row = state.row;
    if (!count) return;
    const path = place.querySelector('.cursor');
    if (path) path.setAttribute('d', `M${rowX(row + 0.5).toFixed(1)} ${chart.top}V${chart.bottom + 6}`);
    const line = lineNumber(rows.line[row]);
    place.setAttribute('aria-valuenow', String(row));
    const text = `${isPtx ? 'line' : 'instruction'} ${line}: ${counted(rows.registers[row], 'register')} in use`;
    place.setAttribute('aria-valuetext', text);
    const depth = rows.loop_depth[row];
    find('#here').textContent = text + (depth ? `, in ${counted(depth, 'loop')}` : '');
  }

  function legend() {
    const swatch = (colour, text) => element('span', null, element('i', { style: `background:var(${colour})` }), text);
    const limit = cap() ? cap().cap : null;
    const shown = [swatch('--area', 'registers in use')];
    if (rows.loop_depth.some((depth) => depth > 0)) shown.push(swatch('--loop', 'in a loop'));
    if (limit !== null && limit < most) shown.push(swatch('--over', `beyond ${limit}`));
    if (marks.lines.length) shown.push(swatch('--spill', 'stores ↓ and reloads ↑'));
    if ([...marks.by.values()].some((here) => here.recomputes)) shown.push(swatch('--again', 'computed again ↻'));
    find('#legend').replaceChildren(...shown);
  }

  /* ---- lists that draw only what is in view ---- */

  const ROW = 20;

  class List {
    constructor(place, { title, label, length, draw, pick }) {
      Object.assign(this, { length, drawRow: draw, pick, selected: -1, related: new Set(), shown: new Map() });
      this.id = `${place.id}-row`;
      this.all = element('div', { class: 'all', role: 'presentation', style: `height:${length * ROW}px` });
      this.view = element('div', { class: 'rows', role: 'listbox', tabindex: '0', 'aria-label': label }, this.all);
      place.replaceChildren(element('div', { class: 'pane' }, element('h3', null, title), this.view));
      this.view.addEventListener('scroll', () => this.schedule(), { passive: true });
      this.view.addEventListener('keydown', (event) => this.key(event));
      this.all.addEventListener('click', (event) => {
        const row = event.target.closest('.row');
        if (row) this.pick(Number(row.dataset.at));
      });
    }
    schedule() {
      if (this.waiting) return;
      this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(false); });
    }
    draw(again) {
      const height = this.view.clientHeight || 520;
      const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - 8);
      const last = Math.min(this.length, Math.ceil((this.view.scrollTop + height) / ROW) + 8);
      for (const [at, row] of this.shown) {
        if (again || at < first || at >= last) { row.remove(); this.shown.delete(at); }
      }
      const made = document.createDocumentFragment();
      for (let at = first; at < last; at++) {
        if (this.shown.has(at)) continue;
        const row = element('div', { class: 'row', role: 'option', id: `${this.id}-${at}`, 'data-at': at, 'aria-posinset': at + 1, 'aria-setsize': this.length, style: `top:${at * ROW}px` });
        this.drawRow(row, at);
        this.shown.set(at, row);
        made.append(row);
      }
      this.all.append(made);
      for (const [at, row] of this.shown) {
        row.classList.toggle('here', at === this.selected);
        row.classList.toggle('related', this.related.has(at));
        row.setAttribute('aria-selected', String(at === this.selected));
      }
      const id = `${this.id}-${this.selected}`;
      if (this.shown.has(this.selected)) this.view.setAttribute('aria-activedescendant', id);
      else this.view.removeAttribute('aria-activedescendant');
    }
    /** Selects a line and shows it; in the middle where it was out of view. */
    select(at, related) {
      this.selected = at;
      this.related = related || new Set();
      const target = at >= 0 ? at : this.related.size ? Math.min(...this.related) : -1;
      if (target >= 0) {
        const [top, height] = [this.view.scrollTop, this.view.clientHeight];
        if (target * ROW < top + ROW || (target + 2) * ROW > top + height) {
          this.view.scrollTop = Math.max(0, target * ROW - height / 2);
        }
      }
      this.draw(false);
    }
    key(event) {
      const page = Math.max(1, Math.floor(this.view.clientHeight / ROW) - 2);
      const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const from = this.selected >= 0 ? this.selected : Math.floor(this.view.scrollTop / ROW);
      this.pick(Math.min(this.length - 1, Math.max(0, from + by)), Math.sign(by));
    }
  }

  /** Registers, the opcode and comments stand out. */
  const WORDS = /(\/\/.*$)|(%[\w.$]+|\b(?:U?R|U?P)\d+\b)|(^\s*(?:@!?\S+\s+)?)([a-z_][\w.:]*)/gi;
  function coloured(place, text) {
    let behind = 0;
    const isLong = text.length > 400;
    const add = (tag, style, part) => { place.append(tag ? element(tag, { class: style }, part) : part); };
    if (!isLong) {
      for (const match of text.matchAll(WORDS)) {
        if (match.index > behind) add(null, null, text.slice(behind, match.index));
        const [all, note, register, lead, opcode] = match;
        if (note) add('span', 'note', all);
        else if (register) add('span', 'reg', all);
        else { add(null, null, lead); add('b', null, opcode); }
        behind = match.index + all.length;
      }
    }
    if (behind < text.length) add(null, null, text.slice(behind));
  }

  function drawCode(row, line) {
    const at = rowOfLine[line];
    const live = element('span', { class: 'live' });
    if (at >= 0) {
      const registers = rows.registers[at];
      const limit = cap() ? cap().cap : null;
      if (limit !== null && registers > limit) live.classList.add('over');
      live.append(element('i', { style: `width:${(100 * registers / Math.max(1, most)).toFixed(1)}%` }), element('b', null, String(registers)));
      row.dataset.depth = Math.min(3, rows.loop_depth[at]);
    }
    const here = marks.by.get(line);
    const marked = element('span', { class: 'marks' });
    if (here) {
      const words = [];
      if (here.stores) { marked.append(`↓${here.stores} `); words.push(counted(here.stores, 'store')); }
      if (here.reloads) { marked.append(`↑${here.reloads} `); words.push(counted(here.reloads, 'reload')); }
      if (here.recomputes) { marked.append(element('em', null, `↻${here.recomputes}`)); words.push(`${here.recomputes} computed again`); }
      marked.title = words.join(', ');
    }
    const text = element('span', { class: 'text' });
    coloured(text, code.lines[line]);
    const shown = isPtx ? String(lineNumber(line)) : (line * 16).toString(16).padStart(4, '0');
    row.append(element('span', { class: 'number' }, shown), ...(count ? [live] : []), ...(isPtx ? [marked] : []), text);
  }

  /* ---- the pane beside the code: source or machine code ---- */

  const besides = [];
  function gatherBesides() {
    if (isPtx && data.machine && data.machine.lines.length) besides.push(machineBeside());
    const all = rows.source;
    data.sources.forEach((file, at) => {
      const lines = new Map();
      all.forEach((source, row) => {
        if (source && source[0] === at) {
          if (!lines.has(source[1] - 1)) lines.set(source[1] - 1, []);
          lines.get(source[1] - 1).push(row);
        }
      });
      if (!lines.size || !file.lines) return;
      besides.push({ name: file.name.split(/[\\/]/).pop(), uses: all.filter((s) => s && s[0] === at).length, ...sourceBeside(file, lines, at) });
    });
    besides.sort((a, b) => (b.uses || 0) - (a.uses || 0));
  }

  function sourceBeside(file, lines, index) {
    // By line, the most registers that are in use along what it became.
    const heat = new Map();
    for (const [line, of] of lines) heat.set(line, Math.max(...of.slice(0, 5000).map((row) => rows.registers[row])));
    return {
      title: file.name,
      label: `Source ${file.name}`,
      length: file.lines.length,
      draw(row, at) {
        const live = element('span', { class: 'live' });
        if (heat.has(at)) live.append(element('i', { style: `width:${(100 * heat.get(at) / Math.max(1, most)).toFixed(1)}%` }), element('b', null, String(heat.get(at))));
        row.append(element('span', { class: 'number' }, String(at + 1)), live, element('span', { class: 'text' }, file.lines[at]));
      },
      /** Lines that belong to a row. */
      of(row) {
        const source = rows.source[row];
        return source && source[0] === index ? new Set([source[1] - 1]) : new Set();
      },
      /** The row that belongs to a line, the nearest behind it where none does. */
      row(line) {
        for (let at = line; at < file.lines.length; at++) if (lines.has(at)) return lines.get(at)[0];
        return state.row;
      },
    };
  }

  function machineBeside() {
    const machine = data.machine;
    const lineOf = machine.rows.ptx_line;
    const byLine = new Map();
    lineOf.forEach((line, at) => {
      if (line === null) return;
      if (!byLine.has(line)) byLine.set(line, []);
      byLine.get(line).push(at);
    });
    const tallest = machine.rows.registers.reduce((a, b) => Math.max(a, b), 1);
    const hasLines = byLine.size > 0;
    return {
      name: 'SASS',
      title: `SASS for ${machine.arch}${machine.registers ? `, ${counted(machine.registers, 'register')}` : ''}${hasLines ? '' : ' (no line information: scrolls along)'}`,
      label: 'Machine code',
      uses: 0.5,
      length: machine.lines.length,
      along: !hasLines,
      draw(row, at) {
        const registers = machine.rows.registers[at];
        const live = element('span', { class: 'live' });
        if (registers !== undefined) {
          live.append(element('i', { style: `width:${(100 * registers / tallest).toFixed(1)}%` }), element('b', null, String(registers)));
          row.dataset.depth = Math.min(3, machine.rows.loop_depth[at]);
        }
        const text = element('span', { class: 'text' });
        coloured(text, machine.lines[at]);
        row.append(element('span', { class: 'number' }, (at * 16).toString(16).padStart(4, '0')), live, text);
      },
      of(row) { return new Set(byLine.get(lineNumber(rows.line[row])) || []); },
      row(at) {
        const line = lineOf[at];
        if (line !== undefined && line !== null) return rowAtOrAfter(Math.max(0, line - code.first_line));
        return hasLines ? state.row : Math.min(count - 1, Math.floor(at * count / machine.lines.length));
      },
    };
  }

  let codeList = null;
  let besideList = null;
  function showBeside(beside) {
    state.beside = beside;
    find('#panes').classList.toggle('two', Boolean(beside));
    find('#pane-beside').replaceChildren();
    besideList = null;
    for (const button of find('#beside').children) button.setAttribute('aria-pressed', String(button.beside === beside));
    if (beside) {
      besideList = new List(find('#pane-beside'), { ...beside, pick: (at) => go(beside.row(at), at) });
      besideList.draw(false);
      alongside();
      related(-1);
    }
  }

  /** Without line information both panes scroll in proportion. */
  function alongside() {
    const beside = state.beside;
    if (!beside || !beside.along || !besideList) return;
    const [a, b] = [codeList.view, besideList.view];
    const part = a.scrollTop / Math.max(1, a.scrollHeight - a.clientHeight);
    b.scrollTop = part * Math.max(0, b.scrollHeight - b.clientHeight);
  }

  function related(at) {
    if (!besideList) return;
    const lines = state.beside.of(state.row);
    besideList.select(at, lines);
  }

  /* ---- moving about ---- */

  /** Looks at a row; `from` is the line of the other pane that led here. */
  function go(row, from = -1) {
    state.row = Math.min(Math.max(0, row), Math.max(0, count - 1));
    cursor();
    if (count) codeList.select(rows.line[state.row]);
    related(from);
    scheduleRanges();
    steps();
    remember();
  }

  function steps() {
    const line = count ? rows.line[state.row] : 0;
    find('#to-previous').disabled = !marks.lines.some((at) => at < line);
    find('#to-next').disabled = !marks.lines.some((at) => at > line);
  }

  function controls() {
    find('#to-peak').disabled = !count;
    find('#to-peak').addEventListener('click', () => go(code.peak));
    find('#to-next').addEventListener('click', () => {
      const next = marks.lines.find((at) => at > rows.line[state.row]);
      if (next !== undefined) go(rowAtOrAfter(next));
    });
    find('#to-previous').addEventListener('click', () => {
      const before = marks.lines.filter((at) => at < rows.line[state.row]).pop();
      if (before !== undefined) go(rowAtOrAfter(before));
    });
    const place = find('#curve');
    const at = (event) => {
      const box = place.getBoundingClientRect();
      return Math.floor((event.clientX - box.left - chart.left) / Math.max(1, chart.right - chart.left) * count);
    };
    place.addEventListener('pointerdown', (event) => {
      if (event.button) return;
      go(at(event));
      if (event.pointerType === 'mouse') place.setPointerCapture(event.pointerId);
    });
    place.addEventListener('pointermove', (event) => {
      if (event.buttons & 1 && event.pointerType === 'mouse') go(at(event));
    });
    place.addEventListener('keydown', (event) => {
      const page = Math.max(1, Math.round(count / 20));
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      go(Math.min(count - 1, Math.max(0, state.row + by)));
    });
    find('#order').addEventListener('change', drawRanges);
    const group = find('#beside');
    if (besides.length) {
      for (const beside of [...besides, null]) {
        const button = element('button', { type: 'button', 'aria-pressed': 'false' }, beside ? beside.name : 'Nothing');
        button.beside = beside;
        button.addEventListener('click', () => { showBeside(beside); codeList.draw(false); });
        group.append(button, ' ');
      }
    }
  }

  /* ---- what is live ---- */

  let rangesWaiting = 0;
  function scheduleRanges() {
    clearTimeout(rangesWaiting);
    rangesWaiting = setTimeout(drawRanges, 60);
  }

  const covers = (value, position) => value.segments.some(([from, to]) => from <= position && position < to);
  const length = (value) => value.segments.reduce((sum, [from, to]) => sum + to - from, 0);
  const cost = (value) => (value.spill_cycles === null ? Infinity : value.spill_cycles / Math.max(1, value.registers));
  const ORDERS = {
    cost: (a, b) => cost(a) - cost(b),
    length: (a, b) => length(b) - length(a),
    registers: (a, b) => b.registers - a.registers,
    written: (a, b) => a.segments[0][0] - b.segments[0][0],
  };
  /** The most that are listed; more than a machine has registers. */
  const MOST_VALUES = 300;

  function drawRanges() {
    if (!count) { find('#live').hidden = true; return; }
    const position = rows.position[state.row];
    const live = code.values.filter((value) => covers(value, position));
    const total = live.reduce((sum, value) => sum + value.registers, 0);
    const isPeak = state.row === code.peak;
    const place = isPtx ? 'line' : 'instruction';
    const line = lineNumber(rows.line[state.row]);
    find('#live-title').textContent = isPeak ? 'Live at the peak' : `Live at ${place} ${line}`;
    find('#live-told').textContent = `${counted(live.length, isPtx ? 'value' : 'register')}${isPtx ? ` in ${counted(total, 'register')}` : ''} at ${place} ${line}. Bars are live ranges along the code; gaps in them are reads.`;
    live.sort(ORDERS[find('#order').value]);
    const made = trial();
    const spilledValues = new Set(made && isOurs(made) ? made.values.map((value) => value.value).filter((at) => at !== null) : []);
    const isSpilled = (value) => spilledValues.has(value.at);
    const hasCost = live.some((value) => value.spill_cycles !== null);
    const lines = live.slice(0, MOST_VALUES).map((value) => {
      const spills = isSpilled(value);
      const button = element('button', { type: 'button', title: 'Go to where it is written' }, value.name);
      const first = value.written[0];
      button.addEventListener('click', () => { if (first !== undefined) go(rowAtOrAfter(first)); });
      const next = value.read.find((at) => at >= rows.line[state.row]);
      const told = (at) => (at === undefined ? '–' : String(lineNumber(at)));
      return element('tr', { class: spills ? 'spilled' : null },
        element('th', { scope: 'row' }, button, spills ? element('span', { class: 'tag' }, 'spilled') : null),
        element('td', null, String(value.registers)),
        element('td', { class: 'range' }, range(value)),
        element('td', null, told(first)),
        element('td', null, told(next === undefined ? value.read[0] : next)),
        element('td', null, number(value.read.length)),
        hasCost ? element('td', null, value.spill_cycles === null ? '' : number(value.spill_cycles)) : null,
        hasCost ? element('td', null, value.recompute_cycles === null ? '–' : number(value.recompute_cycles)) : null);
    });
    const names = ['value', 'registers', 'live range', 'written', 'next read', 'reads', ...(hasCost ? ['to spill', 'to compute again'] : [])];
    find('#ranges').replaceChildren(element('table', null,
      element('thead', null, element('tr', null, names.map((name, at) => element('th', { scope: 'col', class: at === 2 ? 'left' : null }, name)))),
      element('tbody', null, lines)));
  }

  function range(value) {
    const svg = drawn('svg', { viewBox: `0 0 1000 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true', focusable: 'false' });
    const x = (row) => 1000 * row / Math.max(1, count);
    const rowOf = (position) => rowOfNumber[Math.min(rowOfNumber.length - 1, Math.floor(position / 2))];
    let path = '';
    for (const [from, to] of value.segments) {
      const start = x(rowOf(from));
      const end = Math.max(start + 2, x(rowOf(to - 1) + 1));
      path += `M${start.toFixed(1)} 5H${end.toFixed(1)}V15H${start.toFixed(1)}Z`;
    }
    const reads = value.read.slice(0, 400).map((line) => `M${x(rowAtOrAfter(line) + 0.5).toFixed(1)} 5v10`).join('');
    const here = x(state.row + 0.5).toFixed(1);
    svg.append(drawn('path', { class: 'segment', d: path }),
      drawn('path', { class: 'read', d: reads, 'vector-effect': 'non-scaling-stroke' }),
      drawn('path', { class: 'at', d: `M${here} 0v20`, 'vector-effect': 'non-scaling-stroke' }));
    return svg;
  }

  /* ---- the address says what is looked at, so that it can be handed on ---- */

  let remembering = 0;
  function remember() {
    clearTimeout(remembering);
    remembering = setTimeout(() => {
      const parts = [];
      if (cap() && cap().cap !== null) parts.push(`cap=${cap().cap}`);
      if (count && state.row !== code.peak) parts.push(`line=${lineNumber(rows.line[state.row])}`);
      const hash = parts.length ? `#${parts.join('&')}` : '';
      if (hash !== location.hash) {
        // Some viewers allow no change of the address.
        try { history.replaceState(null, '', hash || location.pathname + location.search); } catch (refused) { /* It stays. */ }
      }
    }, 200);
  }
  function recall() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const at = data.caps.findIndex((within) => within.cap !== null && String(within.cap) === asked.get('cap'));
    if (at >= 0) { state.cap = at; }
    if (cap()) state.allocator = Math.max(0, best(cap()));
    const line = Number(asked.get('line'));
    if (line && count) state.row = rowAtOrAfter(Math.min(Math.max(0, line - code.first_line), code.lines.length - 1));
  }

  head();
  theme();
  recall();
  capChoices();
  gatherBesides();
  controls();
  codeList = new List(find('#pane-code'), {
    title: isPtx ? `PTX, ${data.file}` : `SASS for ${data.arch}`,
    label: 'Code',
    length: code.lines.length,
    draw: drawCode,
    pick(line, towards) {
      if (!count) return;
      // Lines without an instruction are stepped over in the direction one goes.
      let at = line;
      while (towards < 0 && at > 0 && rowOfLine[at] < 0) at--;
      go(rowOfLine[at] >= 0 ? rowOfLine[at] : rowAtOrAfter(at));
    },
  });
  codeList.view.addEventListener('scroll', alongside, { passive: true });
  if (!count && !code.lines.length) find('#pressure').hidden = true;
  capChanged();
  showBeside(matchMedia('(max-width: 820px)').matches ? null : besides[0] || null);
  go(state.row);
  drawRanges();
  let resizing = 0;
  addEventListener('resize', () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => { occupancy(); curve(); codeList.draw(false); if (besideList) besideList.draw(false); });
  });
  addEventListener('beforeprint', () => { occupancy(); curve(); codeList.draw(true); });
})();
