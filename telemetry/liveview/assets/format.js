const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** bytes as people read them, in binary units. */
export function bytes(n) {
  let u = 0;
  while (n >= 1024 && u < units.length - 1) {
    n /= 1024;
    u++;
  }
  return `${u === 0 || n >= 100 ? Math.round(n) : n.toFixed(n >= 10 ? 1 : 2)} ${units[u]}`;
}

/** count with thin groups: 12 345. */
export const count = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** counted is "1 block" or "2 blocks". */
export const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

/** short is a count with few digits: 1.2 M. */
export function short(n) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (n >= size) return `${(n / (unit === "k" ? 1e3 : size)).toFixed(n / size >= 100 || unit === "k" ? 0 : 1)}\u202f${unit}`;
  }
  return n < 10 && n % 1 ? n.toFixed(1) : String(Math.round(n));
}

export const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(part / whole < 0.0995 ? 1 : 0)}\u202f%` : "–");

/** duration of so many milliseconds; unknown if negative. */
export function duration(ms) {
  if (ms < 0) return "unknown";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${Math.floor(s % 60)} s`;
  const h = Math.floor(m / 60);
  return h < 48 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
}

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
