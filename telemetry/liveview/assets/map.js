import { bytes, count, counted, duration } from "./format.js";
import { color, mix, ofState, onTheme, states } from "./palette.js";

const rowHeight = 15;
const rowGap = 3;
const granule = 2 << 20;
const closest = 64 << 10; // bytes that a closer look shows at least
const dragged = 5; // pixels that a pointer moves before it marks a stretch

/** hexAt is an address of a map, from an offset. */
function hexAt(extents, offset) {
  for (const e of extents) {
    if (offset < e.bytes) return `0x${(BigInt(e.from) + BigInt(Math.floor(offset))).toString(16)}`;
    offset -= e.bytes;
  }
  return "";
}

/** offsetOf is where an address is on a map; one in a gap is at its end. */
function offsetOf(extents, address) {
  let begin = 0;
  for (const e of extents) {
    const from = BigInt(e.from);
    if (address <= from) return begin;
    if (address < from + BigInt(e.bytes)) return begin + Number(address - from);
    begin += e.bytes;
  }
  return begin;
}

const sizeOf = (extents) => extents.reduce((sum, e) => sum + e.bytes, 0);
const clamp = (n, least, most) => Math.min(Math.max(n, least), most);

/** AddressMap draws the blocks of a device by address, row upon row, and lets
 * one be chosen by pointer or keys. chosen is called with a stretch of
 * addresses. A part of it can be looked at closely: looked is called when another
 * one is to be, with nothing for all. */
export class AddressMap {
  #canvas;
  #tip;
  #chosen;
  #looked;
  #whole = null; // the map of all
  #map = null; // what is drawn
  #total = 0;
  #drag = null; // { from, to } in bytes of what is drawn, while a stretch is marked
  range = null; // { from, to } as hexadecimal addresses, of a closer look
  #selected = -1; // generation
  #gutter = 0;
  byTag = null; // the colours of tags, if blocks are coloured by them
  skew = 0; // ms by which this machine's clock is ahead of the server's

  constructor(canvas, tip, chosen, looked) {
    this.#canvas = canvas;
    this.#tip = tip;
    this.#chosen = chosen;
    this.#looked = looked;
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(canvas.parentElement);
    onTheme(() => this.draw());
    canvas.addEventListener("pointermove", (e) => (this.#drag && e.buttons & 1 ? this.#mark(e) : this.#hover(e)));
    canvas.addEventListener("pointerdown", (e) => this.#press(e));
    canvas.addEventListener("pointerup", () => this.#release());
    canvas.addEventListener("pointercancel", () => { this.#drag = null; this.draw(); });
    canvas.addEventListener("wheel", (e) => this.#wheel(e), { passive: false });
    canvas.addEventListener("pointerleave", () => { this.#tip.hidden = true; });
    canvas.addEventListener("click", (e) => this.#click(e));
    canvas.addEventListener("keydown", (e) => this.#key(e));
  }

  /** show takes the map of all; of a closer look what is drawn stays. */
  show(map) {
    this.#whole = map;
    if (!this.range) this.#use(map);
  }

  /** showPart takes the map of the stretch that is looked at. */
  showPart(map) {
    this.#canvas.classList.remove("asking");
    this.#use(map);
  }

  #use(map) {
    this.#map = map;
    this.#total = sizeOf(map.extents);
    this.draw();
  }

  /** all ends a closer look. */
  all() {
    this.range = null;
    this.#canvas.classList.remove("asking");
    if (this.#whole) this.#use(this.#whole);
    this.#looked();
  }

  /** zoom shows so many times as much as now, around the chosen block or the
   * middle, or around an offset of what is drawn. */
  zoom(times, around = null) {
    if (!this.#map || this.#total === 0) return;
    const i = this.#index();
    const at = around ?? (i < 0 ? this.#total / 2 : this.#map.listed.offset[i] + this.#map.listed.bytes[i] / 2);
    const [from, to] = this.#window();
    const middle = this.#outer(at);
    this.#look(middle - (middle - from) * times, (to - from) * times);
  }

  /** pan moves a closer look by so much of itself. */
  pan(share) {
    const [from, to] = this.#window();
    if (this.range) this.#look(from + share * (to - from), to - from);
  }

  /** #window is what is drawn, in bytes of the map of all. */
  #window() {
    const extents = this.#whole.extents;
    return this.range ? [offsetOf(extents, BigInt(this.range.from)), offsetOf(extents, BigInt(this.range.to))] : [0, sizeOf(extents)];
  }

  /** #outer is where an offset of what is drawn lies on the map of all. */
  #outer(offset) { return offsetOf(this.#whole.extents, BigInt(hexAt(this.#map.extents, clamp(offset, 0, this.#total - 1)))); }

  /** #look looks at a stretch of the map of all. */
  #look(from, size) {
    const extents = this.#whole.extents;
    const total = sizeOf(extents);
    if (size >= total) return this.all();
    size = Math.round(clamp(size, Math.min(closest, total), total));
    from = Math.round(clamp(from, 0, total - size));
    const last = BigInt(hexAt(extents, from + size - 1));
    this.range = { from: hexAt(extents, from), to: `0x${(last + 1n).toString(16)}` };
    this.#canvas.classList.add("asking");
    this.#tip.hidden = true;
    this.#looked(this.range);
  }

  /** late is how old the map is, in ms. */
  get #late() { return Math.max(0, Date.now() - this.skew - Date.parse(this.#map.at)); }

  get #rows() {
    const most = this.#canvas.parentElement.clientWidth < 600 ? 16 : 12;
    return Math.max(1, Math.ceil(this.#total / this.#round(this.#total / most)));
  }

  /** perRow is whole granules, so that rows begin at round addresses. */
  get #perRow() { return this.#round(this.#total / this.#rows); }
  get #granule() { return this.range ? clamp(2 ** Math.floor(Math.log2(this.#total / 128)), 512, granule) : granule; }
  #round(size) { return Math.max(1, Math.ceil(size / this.#granule)) * this.#granule; }
  get #width() { return this.#canvas.clientWidth - this.#gutter; }

  draw() {
    const c = this.#canvas;
    const width = c.parentElement.clientWidth;
    const height = this.#rows * (rowHeight + rowGap) - rowGap;
    const ratio = window.devicePixelRatio || 1;
    c.style.height = `${height}px`;
    if (c.width !== Math.round(width * ratio) || c.height !== Math.round(height * ratio)) {
      c.width = Math.round(width * ratio);
      c.height = Math.round(height * ratio);
    }
    const g = c.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    this.#gutter = width < 600 ? 0 : 112;
    if (!this.#map || this.#total === 0) return;
    g.fillStyle = color("free");
    this.#pieces(0, this.#total, (x, y, w) => g.fillRect(x, y, w, rowHeight));
    this.#drawRest(g);
    this.#drawListed(g);
    this.#drawExtents(g);
    this.#drawSelected(g);
    this.#drawMarked(g);
  }

  #y(row) { return row * (rowHeight + rowGap); }

  /** pieces calls f for each piece of a stretch: it may reach over rows. */
  #pieces(offset, size, f) {
    const per = this.#perRow;
    for (let at = offset, end = offset + size; at < end;) {
      const row = Math.min(Math.floor(at / per), this.#rows - 1);
      const until = row === this.#rows - 1 ? end : Math.min(end, (row + 1) * per);
      f(this.#gutter + ((at - row * per) / per) * this.#width, this.#y(row), ((until - at) / per) * this.#width);
      if (until <= at) return;
      at = until;
    }
  }

  #drawRest(g) {
    const { cells, cell_bytes: size } = this.#map.rest;
    for (const [cell, ...by] of cells) {
      let below = 0;
      by.forEach((n, state) => {
        if (n === 0) return;
        const high = Math.max(1, (n / size) * rowHeight);
        g.fillStyle = this.byTag ? color("other") : ofState(state, -1);
        this.#pieces(cell * size, Math.min(size, this.#total - cell * size), (x, y, w) => g.fillRect(x, y + rowHeight - below - high, Math.max(w, 0.5), high));
        below += high;
      });
    }
  }

  #drawListed(g) {
    const { offset, bytes: size, state, age_ms: age, tag } = this.#map.listed;
    const since = this.#late;
    const names = this.#map.tags;
    offset.forEach((from, i) => {
      g.fillStyle = this.byTag ? mix(this.byTag.name(names[tag[i]]), "surface", state[i] === 0 ? 1 : 0.5) : ofState(state[i], age[i] < 0 ? -1 : age[i] + since);
      this.#pieces(from, size[i], (x, y, w) => g.fillRect(x, y, w > 3 ? w - 1 : Math.max(w, 0.7), rowHeight));
    });
  }

  #drawExtents(g) {
    g.font = "11px ui-monospace, Menlo, monospace";
    g.textBaseline = "middle";
    g.fillStyle = color("soft");
    if (this.#gutter > 0) {
      for (let row = 0; row < this.#rows; row++) g.fillText(hexAt(this.#map.extents, row * this.#perRow), 0, this.#y(row) + rowHeight / 2 + 1);
    }
    let begin = 0;
    g.fillStyle = color("surface");
    for (const e of this.#map.extents.slice(0, -1)) {
      begin += e.bytes;
      this.#pieces(begin, 1, (x, y) => g.fillRect(x - 1.5, y - 1, 3, rowHeight + 2));
    }
  }

  #drawSelected(g) {
    const i = this.#index();
    if (i < 0) return;
    g.strokeStyle = color("text");
    g.lineWidth = 2;
    this.#pieces(this.#map.listed.offset[i], this.#map.listed.bytes[i], (x, y, w) => g.strokeRect(x - 1, y - 1, Math.max(w, 2) + 1, rowHeight + 2));
  }

  #drawMarked(g) {
    if (!this.#drag?.moved) return;
    const [from, to] = this.#marked();
    g.globalAlpha = 0.35;
    g.fillStyle = color("text");
    this.#pieces(from, to - from, (x, y, w) => g.fillRect(x, y - 1, w, rowHeight + 2));
    g.globalAlpha = 1;
  }

  #marked() { return [Math.min(this.#drag.from, this.#drag.to), Math.max(this.#drag.from, this.#drag.to)]; }

  #press(event) {
    const hit = event.button === 0 && event.pointerType !== "touch" ? this.#at(event) : null;
    this.#drag = hit && { from: hit.offset, to: hit.offset, x: event.clientX, y: event.clientY, moved: false };
  }

  #mark(event) {
    const hit = this.#at(event);
    const drag = this.#drag;
    if (!drag.moved && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > dragged) {
      drag.moved = true;
      this.#canvas.setPointerCapture(event.pointerId);
    }
    if (!hit || !drag.moved) return;
    this.#tip.hidden = true;
    drag.to = hit.offset;
    this.draw();
  }

  #release() {
    const drag = this.#drag;
    if (!drag?.moved) return;
    const [from, to] = this.#marked().map((offset) => this.#outer(offset));
    drag.done = true; // the click that follows is none
    this.#look(from, to - from);
    this.draw();
  }

  /** #wheel zooms with Ctrl or Command, as pinching does: else the page scrolls. */
  #wheel(event) {
    const hit = event.ctrlKey || event.metaKey ? this.#at(event) : null;
    if (!hit) return;
    event.preventDefault();
    this.zoom(clamp(Math.exp(event.deltaY * 0.004), 0.5, 2), hit.offset);
  }

  #index() { return this.#map?.listed.generation.indexOf(this.#selected) ?? -1; }

  /** at is what lies under a pointer: an offset, and the listed block, if one is
   * there or so close that nobody could hit it better. */
  #at(event) {
    const box = this.#canvas.getBoundingClientRect();
    const x = event.clientX - box.left - this.#gutter;
    const row = Math.floor((event.clientY - box.top) / (rowHeight + rowGap));
    if (!this.#map || x < 0 || row < 0 || row >= this.#rows) return null;
    const offset = row * this.#perRow + (x / this.#width) * this.#perRow;
    if (offset >= this.#total) return null;
    const { offset: from, bytes: size } = this.#map.listed;
    const slack = (this.#perRow / this.#width) * 2;
    let best = -1;
    let nearest = slack;
    from.forEach((begin, i) => {
      const away = Math.max(begin - offset, offset - begin - size[i], 0);
      if (away < nearest || (away === 0 && nearest === 0)) [best, nearest] = [i, away];
    });
    return { offset, best, pixel: this.#perRow / this.#width };
  }

  #hover(event) {
    const hit = this.#at(event);
    const text = hit && this.#describe(hit);
    this.#tip.hidden = !text;
    if (!text) return;
    this.#tip.textContent = text;
    const box = this.#canvas.parentElement.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - this.#tip.offsetWidth - 4);
    const below = event.clientY - box.top + 18;
    this.#tip.style.left = `${Math.max(left, 0)}px`;
    this.#tip.style.top = `${below}px`;
  }

  #describe({ offset, best }) {
    if (best >= 0) return this.#text(best);
    const { cells, cell_bytes: size } = this.#map.rest;
    const cell = (cells).find(([n]) => n === Math.floor(offset / size));
    if (!cell) return "";
    return `${hexAt(this.#map.extents, cell[0] * size)} small blocks: ${states.map((s, i) => [s, cell[i + 1]]).filter(([, n]) => n > 0).map(([s, n]) => `${bytes(n)} ${s}`).join(", ")} of ${bytes(size)}`;
  }

  #text(i) {
    const { bytes: size, state, age_ms: age, tag, generation } = this.#map.listed;
    return `${this.#map.tags[tag[i]]} #${generation[i]} · ${bytes(size[i])} · ${states[state[i]]}${age[i] < 0 ? "" : ` · ${duration(age[i])}`}`;
  }

  #click(event) {
    const marked = this.#drag?.done;
    this.#drag = null;
    if (marked) return;
    const hit = this.#at(event);
    if (!hit) return;
    if (hit.best >= 0) return this.#choose(hit.best);
    this.#selected = -1;
    this.draw();
    const { cell_bytes: cell } = this.#map.rest;
    const size = Math.max(cell || 0, hit.pixel * 3);
    const from = Math.floor(hit.offset / size) * size;
    this.#chosen({ from: hexAt(this.#map.extents, from), size: Math.min(size, this.#total - from) });
  }

  #choose(i, open = true) {
    this.#selected = this.#map.listed.generation[i];
    this.draw();
    this.#canvas.setAttribute("aria-label", `Blocks by address. Chosen: ${this.#text(i)}. Enter shows it, plus and minus zoom, zero shows all.`);
    if (open) this.#chosen({ from: hexAt(this.#map.extents, this.#map.listed.offset[i]), size: this.#map.listed.bytes[i], generation: this.#selected });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const zooms = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.all(), Escape: () => this.all(), PageDown: () => this.pan(0.5), PageUp: () => this.pan(-0.5) }[event.key];
    if (zooms && this.#map && (this.range || event.key === "+" || event.key === "=")) {
      event.preventDefault();
      return zooms();
    }
    const from = this.#map?.listed.offset ?? []; // no map yet
    if (from.length === 0) return;
    const i = this.#index();
    const vertical = (by) => {
      const to = (i < 0 ? 0 : from[i]) + by * this.#perRow;
      return from.reduce((best, f, j) => (Math.abs(f - to) < Math.abs(from[best] - to) ? j : best), 0);
    };
    const next = { ArrowRight: () => Math.min(i + 1, from.length - 1), ArrowLeft: () => Math.max(i - 1, 0), ArrowDown: () => vertical(1), ArrowUp: () => vertical(-1), Home: () => 0, End: () => from.length - 1, Enter: () => Math.max(i, 0) }[event.key];
    if (!next) return;
    event.preventDefault();
    this.#choose(next(), event.key === "Enter");
    this.#tip.textContent = this.#text(this.#index());
    this.#tip.hidden = false;
    Object.assign(this.#tip.style, { left: `${this.#gutter}px`, top: `${this.#canvas.clientHeight + 2}px` });
  }

  /** summary says what the map is of. */
  get summary() {
    const m = this.#map;
    if (!m) return "";
    const late = this.#late;
    const small = m.rest.blocks > 0 ? `, the largest ${count(m.listed.offset.length)} one by one` : "";
    return `${counted(m.blocks, "block")}, ${bytes(m.bytes)} in ${bytes(this.#total)} of addresses${small}${late > 3000 ? `, as of ${duration(late)} ago` : ""}`;
  }

  /** shownRange says which addresses are drawn. */
  get shownRange() {
    if (!this.#map || this.#total === 0) return "";
    if (!this.range) return "All addresses in use. Drag, or Ctrl and the wheel, or + for a closer look.";
    return `${this.range.from} to ${this.range.to}: ${bytes(Number(BigInt(this.range.to) - BigInt(this.range.from)))}. Page keys move, 0 shows all.`;
  }

  get dated() { return this.#map?.dated ?? true; }
}
