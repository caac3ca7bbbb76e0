import { byID, el } from "./dom.js";
import { bytes, clock, count, counted } from "./format.js";
import { color } from "./palette.js";

const when = (time) => el("time", { className: "time", dateTime: time, title: time, textContent: clock(time) });

/** fill puts items into a list and keeps open what was open. */
function fill(at, items, none, keyOf, make) {
  const open = new Set([...at.querySelectorAll("details[open]")].map((d) => d.key));
  at.replaceChildren(...items.map((item) => {
    const d = make(item);
    d.key = keyOf(item);
    d.open = open.has(d.key);
    return d;
  }));
  if (items.length === 0) at.append(el("p", { className: "none", textContent: none }));
}

export function findings(list) {
  byID("findings").classList.add("findings");
  fill(byID("findings"), list, "None.", (f) => `${f.time} ${f.kind} ${f.generation}`, (f) => el("details", {},
    el("summary", {}, when(f.time), el("span", { className: "kind", textContent: f.kind }), el("span", { className: "what", textContent: `${f.tag ? `${f.tag}${f.generation ? ` #${f.generation}` : ""}: ` : ""}${f.text}` })),
    el("pre", { textContent: `[${f.source}] ${f.detail}` })));
}

export function refusals(list) {
  fill(byID("refusals"), list, "None.", (r) => `${r.time} ${r.tag} ${r.requested}`, (r) => el("details", {},
    el("summary", {}, when(r.time), el("span", { className: "kind", textContent: r.tag }), el("span", { className: "what", textContent: `${bytes(r.requested)}${r.budget ? `, ${bytes(r.budget.remaining)} left of ${bytes(r.budget.limit)}${before(r.budget)}` : ""}${r.relieved ? " · relieved by the guard" : ""}` })),
    el("div", { className: "body" }, el("p", { textContent: r.text }), ...(r.budget ? holders(r.budget) : []))));
}

/** before is what stood before the request. */
function before(b) {
  return `${b.ahead ? `, behind ${counted(b.ahead, "request")} for ${bytes(b.ahead_bytes)}, first ${b.ahead_tag || "untagged"}` : ""}${b.learning ? ", being learned" : ""}`;
}

/** holders is who had the memory then. */
function holders(b) {
  const parts = [["live", b.live], ["quarantined", b.quarantined], ["pending", b.pending], ["claimed", b.claimed]];
  const row = (h) => el("tr", {}, el("td", { className: "name", textContent: h.tag, title: h.tag }), el("td", { textContent: h.state === "retired" ? "pending" : h.state }), el("td", { className: "n", textContent: bytes(h.bytes) }), el("td", { className: "n", textContent: h.state === "claimed" ? counted(h.blocks, "reservation") : count(h.blocks) }));
  return [
    el("div", { className: "pieces", role: "img", "aria-label": parts.map(([s, n]) => `${s} ${bytes(n)}`).join(", ") },
      ...parts.map(([s, n]) => el("i", { title: `${s} ${bytes(n)}`, style: { width: `${(100 * n) / b.limit}%`, background: color(s) } }))),
    el("table", {}, el("thead", {}, el("tr", {}, ...["holder then", "state"].map((t) => el("th", { textContent: t })), ...["bytes", "blocks"].map((t) => el("th", { className: "n", textContent: t })))), el("tbody", {}, ...b.holders.map(row))),
    ...(b.more_holders ? [el("p", { textContent: `and ${counted(b.more_holders, "more holder")} of ${bytes(b.more_bytes)}` })] : []),
  ];
}
