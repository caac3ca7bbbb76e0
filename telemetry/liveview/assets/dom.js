// What the program says is put into the page as text, never as markup.

/** el makes an element. Children are nodes or texts; props are properties, and
 * attributes where the name has a dash or is one of those below. */
export function el(name, props = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key === "style") Object.assign(node.style, value);
    else if (key.includes("-") || key === "role" || key === "scope") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

/** setText writes only what has changed, so that a selection survives. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const byID = (id) => document.getElementById(id);

const kept = new WeakMap();

/** keyed keeps the children of parent in step with items: make is called for a
 * new key, update for each item; nodes that are still there keep focus. */
export function keyed(parent, items, keyOf, make, update) {
  const former = kept.get(parent) ?? new Map();
  const rows = new Map();
  items.forEach((item, i) => {
    const key = keyOf(item);
    const row = former.get(key) ?? make(item);
    former.delete(key);
    rows.set(key, row);
    update(row, item);
    if (parent.children[i] !== row) parent.insertBefore(row, parent.children[i] ?? null);
  });
  for (const row of former.values()) row.remove();
  kept.set(parent, rows);
}

/** cells makes a table row of so many cells, each of a class. */
export const cells = (classes) => el("tr", {}, ...classes.map((c) => el("td", { className: c })));
