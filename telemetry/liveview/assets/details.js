import { byID, el } from "./dom.js";
import { bytes, count, duration } from "./format.js";

const pairs = (list) => el("dl", {}, ...list.flatMap(([name, text]) => [el("dt", { textContent: name }), el("dd", { textContent: text })]));

/** loading says which blocks are being asked for. */
export const loading = () => byID("details").replaceChildren(el("p", { className: "quiet", textContent: "asking …" }));

export const failed = (why) => byID("details").replaceChildren(el("p", { className: "bad", textContent: why }));

/** details shows the blocks of a stretch of addresses; asked is the one that was
 * chosen, if it was one. */
export function details(answer, asked) {
  const list = asked ? answer.blocks.filter((b) => b.generation === asked) : answer.blocks;
  const at = byID("details");
  at.replaceChildren(...list.map(block));
  if (list.length === 0) at.append(el("p", { className: "quiet", textContent: asked ? `Block #${asked} is gone.` : "No block is there now." }));
  else if (!asked && answer.total > list.length) at.append(el("p", { className: "quiet", textContent: `The largest ${list.length} of ${count(answer.total)} blocks there.` }));
}

function block(b) {
  const facts = el("div", {}, el("h3", { textContent: `${b.tag} #${b.generation}` }), pairs([
    ["state", b.state], ["held for", duration(b.age_ms)], ["bytes", `${bytes(b.bytes)} (${count(b.bytes)})`],
    ["asked for", `${bytes(b.requested)} (${count(b.requested)})`], ["address", b.ptr], ["stream", b.stream ? `${b.stream}` : "default"],
  ]));
  return el("div", { className: "block" }, facts, stack(b.stack), uses(b.uses));
}

function stack(lines) {
  const head = el("h4", { textContent: "Allocated at" });
  if (!lines?.length) return el("div", {}, head, el("p", { className: "quiet", textContent: "not kept: stacks are kept for guarded and sampled blocks, and for those of 1 MiB and more while the guard is on" }));
  return el("div", {}, head, el("ol", { className: "stack mono" }, ...lines.map((line) => {
    const cut = line.lastIndexOf(" ");
    return el("li", { title: line }, `${line.slice(0, cut).split("/").pop()} `, el("span", { textContent: line.slice(cut + 1).split("/").slice(-2).join("/") }));
  })));
}

function uses(list) {
  const head = el("h4", { textContent: "Last declared uses" });
  if (!list?.length) return el("div", {}, head, el("p", { className: "quiet", textContent: "none are kept" }));
  const row = (u) => el("tr", {}, el("td", { textContent: u.launch || "–" }), el("td", { className: "n", textContent: u.id ? `${u.id}` : "" }), el("td", { textContent: u.access }), el("td", { textContent: u.stream ? `stream ${u.stream}` : "default" }), el("td", { className: "n", textContent: u.age_ms < 0 ? "" : `${duration(u.age_ms)} ago` }));
  return el("div", {}, head, el("table", {}, el("tbody", {}, ...list.map(row))));
}
