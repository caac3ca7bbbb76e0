// Colours come from the style sheet, which has them for light and dark.

export const states = ["live", "pending", "quarantined"];
const slots = 8;

let cache = new Map();
const watchers = [];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  cache = new Map();
  watchers.forEach((f) => f());
});

/** onTheme calls f when light turns dark or back. */
export const onTheme = (f) => watchers.push(f);

/** color is a colour of the style sheet by its name. */
export function color(name) {
  if (!cache.has(name)) cache.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return cache.get(name);
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** mix is so much of colour a in colour b. */
export function mix(a, b, share) {
  const key = `${a}|${b}|${share}`;
  if (!cache.has(key)) {
    const [x, y] = [rgb(color(a)), rgb(color(b))];
    cache.set(key, `rgb(${x.map((v, i) => Math.round(v * share + y[i] * (1 - share))).join(",")})`);
  }
  return cache.get(key);
}

/** ages are the steps in which age is shown: the longer held, the stronger. */
export const ages = [
  { upTo: 1000, share: 0.38, text: "1 s" },
  { upTo: 10_000, share: 0.53, text: "10 s" },
  { upTo: 60_000, share: 0.68, text: "1 min" },
  { upTo: 600_000, share: 0.84, text: "10 min" },
  { upTo: Infinity, share: 1, text: "more" },
];
const unknownAge = 0.72;

export const ofState = (state, age) => mix(states[state], "surface", age < 0 ? unknownAge : ages.find((a) => age <= a.upTo).share);

/** Tags gives tags colours, and keeps to them while they hold memory. */
export class Tags {
  #slot = new Map();

  /** settle gives free colours to the largest tags that have none; kept says
   * which tags still have something to show. */
  settle(tags, kept) {
    for (const tag of this.#slot.keys()) if (!kept(tag)) this.#slot.delete(tag);
    const used = new Set(this.#slot.values());
    for (const { tag } of tags) {
      if (!tag || this.#slot.has(tag) || used.size === slots) continue;
      const free = [...Array(slots).keys()].find((i) => !used.has(i));
      this.#slot.set(tag, free);
      used.add(free);
    }
  }

  has(tag) { return this.#slot.has(tag); }

  /** name is that of the tag's colour. */
  name(tag) { return this.#slot.has(tag) ? `tag${this.#slot.get(tag)}` : "other"; }

  /** list is the tags with colours of their own, in the order of the colours. */
  list() { return [...this.#slot].sort((a, b) => a[1] - b[1]).map(([tag]) => tag); }
}
