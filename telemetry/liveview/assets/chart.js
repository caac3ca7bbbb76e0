import { bytes, clock } from "./format.js";
import { color, mix, onTheme } from "./palette.js";

const height = 236;
const shortest = 60; // seconds that the axis shows at least

/** nice is a round step of bytes for so many bytes on the axis. */
function nice(span) {
  let step = 1;
  while (span / step > 5) step *= 2;
  return step;
}

/** withheld are the layers above what is live. */
const withheld = ["quarantined", "pending", "claimed"];

/** Chart draws what each tag has live, one upon the other, above that what is
 * quarantined, pending and claimed, and the budget. Samples are { t, live: Map,
 * sum, quarantined, pending, claimed, limit }; what is not known is null, and one
 * that is a gap has nothing but t. */
export class Chart {
  #at;
  #plot = null;
  #layers = "";
  #top = 1;
  #samples = [];
  #hovered;
  toBudget = false;

  constructor(at, hovered) {
    this.#at = at;
    this.#hovered = hovered;
    new ResizeObserver(() => requestAnimationFrame(() => this.#plot?.setSize({ width: at.clientWidth, height }))).observe(at);
    onTheme(() => { this.#layers = ""; });
  }

  /** show draws the samples; tags says which have colours of their own. */
  show(samples, tags) {
    this.#samples = samples;
    const own = tags.list();
    const layers = [...own, null, ...withheld]; // null is the other tags
    const columns = layers.map((layer) => samples.map((s) => this.#value(s, layer, own)));
    for (let i = 1; i < columns.length; i++) columns[i] = columns[i].map((v, j) => (v === null ? null : v + columns[i - 1][j]));
    const sum = columns.at(-1);
    const limit = samples.at(-1)?.limit ?? 0;
    const peak = Math.max(1, ...sum.map((v) => v ?? 0));
    this.#top = this.toBudget || peak > 0.4 * limit ? Math.max(limit, peak) * 1.04 : peak * 1.12;
    const colors = layers.map((layer) => (layer === null ? "other" : withheld.includes(layer) ? layer : tags.name(layer)));
    const data = [samples.map((s) => s.t), ...columns.reverse(), samples.map((s) => (s.live ? s.limit || null : null))];
    if (this.#layers !== colors.join()) {
      this.#layers = colors.join();
      this.#build(colors.reverse(), data);
    } else {
      this.#plot.setData(data);
    }
    return { peak, limit, shown: this.#top >= limit };
  }

  #value(s, layer, own) {
    if (!s.live) return null;
    if (withheld.includes(layer)) return s[layer] ?? 0;
    if (layer !== null) return s.live.get(layer) ?? 0;
    let rest = s.sum;
    for (const tag of own) rest -= s.live.get(tag) ?? 0;
    return Math.max(rest, 0);
  }

  #build(colors, data) {
    this.#plot?.destroy();
    const last = colors.length;
    const axis = { stroke: color("soft"), font: "12px system-ui, sans-serif", grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, gap: 6 };
    this.#plot = new uPlot({
      width: Math.max(this.#at.clientWidth, 60),
      height,
      padding: [6, 34, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false, y: false } },
      scales: {
        // Of one sample uPlot would make a day.
        x: { time: true, range: () => [Math.min(this.#samples[0].t, this.#samples.at(-1).t - shortest), this.#samples.at(-1).t] },
        y: { range: () => [0, this.#top] },
      },
      axes: [
        { ...axis, space: 80, size: 28, values: (_, splits) => splits.map((s) => clock(s * 1000)) },
        { ...axis, size: 66, splits: (_, __, min, max) => Array.from({ length: Math.floor(max / nice(max)) + 1 }, (_, i) => i * nice(max)), values: (_, splits) => splits.map(bytes) },
      ],
      series: [
        {},
        ...colors.map((name, i) => ({ stroke: color(name), width: 1, points: { show: false }, fill: i === last - 1 ? mix(name, "surface", 0.62) : undefined })),
        { stroke: color("text"), width: 1, dash: [5, 4], points: { show: false } },
      ],
      bands: colors.slice(0, -1).map((name, i) => ({ series: [i + 1, i + 2], fill: mix(name, "surface", 0.62) })),
      hooks: { setCursor: [(u) => this.#hovered(u.cursor.idx == null ? null : this.#samples[u.cursor.idx])] },
    }, data, this.#at);
  }
}
