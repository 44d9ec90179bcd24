// Values, times and sizes as people read them.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const GAP = "\u00a0";

export function valueText(value: number, unit: string): string {
  const size = Math.abs(value);
  if (unit === "nanoseconds") {
    if (size >= 3.6e12) return `${fixed(value / 3.6e12)}${GAP}h`;
    if (size >= 1e11) return `${fixed(value / 6e10)}${GAP}min`;
    if (size >= 1e9) return `${fixed(value / 1e9)}${GAP}s`;
    if (size >= 1e6) return `${fixed(value / 1e6)}${GAP}ms`;
    if (size >= 1e3) return `${fixed(value / 1e3)}${GAP}µs`;
    return `${fixed(value)}${GAP}ns`;
  }
  if (unit === "bytes") return sizeText(value);
  const said = unit && unit !== "count" ? `${GAP}${unit}` : "";
  return countText(value) + said;
}

export function sizeText(bytes: number): string {
  let rest = bytes;
  let place = 0;
  while (Math.abs(rest) >= 1000 && place < SIZES.length - 1) {
    rest /= 1024;
    place++;
  }
  return `${place ? fixed(rest) : Math.round(rest)}${GAP}${SIZES[place]}`;
}

export function countText(count: number): string {
  return Math.round(count).toLocaleString("en").replaceAll(",", "\u202f");
}

export function counted(count: number, noun: string): string {
  return `${countText(count)}${GAP}${noun}${count === 1 ? "" : "s"}`;
}

function fixed(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

export function shareText(part: number, whole: number): string {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  return `${share >= 10 || share === 0 ? share.toFixed(1) : share.toFixed(2)}${GAP}%`;
}

export function pointsText(points: number): string {
  const sign = points > 0 ? "+" : points < 0 ? "−" : "±";
  return `${sign}${Math.abs(points).toFixed(Math.abs(points) >= 10 ? 1 : 2)}`;
}

export function msText(ms: number): string {
  return ms >= 10_000 ? `${(ms / 1000).toFixed(1)}${GAP}s` : `${ms.toFixed(ms >= 10 ? 0 : 1)}${GAP}ms`;
}

// A name without the path of its package, which would leave no room for the rest.
export function shortName(name: string): string {
  return name.replace(/^[^\s()<>[\]]*\/(?=[^/])/, "");
}

export type Zone = "utc" | "local";

export function zoneName(zone: Zone): string {
  return zone === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

function parts(ms: number, zone: Zone): number[] {
  const date = new Date(ms);
  return zone === "utc"
    ? [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate(), date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds()]
    : [date.getFullYear(), date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds()];
}

// As <input type="datetime-local"> has it.
export function fieldTime(ms: number, zone: Zone): string {
  const [year, month, day, hour, minute, second] = parts(ms, zone).map((part) => String(part).padStart(2, "0"));
  return `${year.padStart(4, "0")}-${month}-${day}T${hour}:${minute}:${second}`;
}

export function fromField(text: string, zone: Zone): number | null {
  if (!text) return null;
  const ms = Date.parse(zone === "utc" ? `${text}Z` : text);
  return Number.isNaN(ms) ? null : ms;
}

export function momentText(ms: number, zone: Zone): string {
  return fieldTime(ms, zone).replace("T", " ");
}

export function rangeText(startMs: number, endMs: number, zone: Zone): string {
  const [start, end] = [momentText(startMs, zone), momentText(endMs, zone)];
  return `${start} … ${start.slice(0, 10) === end.slice(0, 10) ? end.slice(11) : end}`;
}

export function stepText(ms: number): string {
  if (ms < 1_000) return `${ms} ms`;
  return ms < 60_000 ? `${Math.round(ms / 100) / 10} s` : `${Math.round(ms / 6_000) / 10} min`;
}

const UNIT_MS: Record<string, number> = { s: 1e3, m: 6e4, h: 3.6e6, d: 8.64e7, w: 6.048e8 };

// now, now-6h or unix milliseconds, as the server reads them; null for anything else.
export function readMoment(text: string, nowMs: number): number | null {
  const relative = /^now(?:-(\d{1,9})([smhdw]))?$/.exec(text);
  if (relative) return nowMs - Number(relative[1] ?? 0) * (UNIT_MS[relative[2]] ?? 0);
  return /^\d{11,16}$/.test(text) ? Number(text) : /^\d{1,10}$/.test(text) ? Number(text) * 1000 : null;
}

// process_cpu:cpu:nanoseconds:cpu:nanoseconds in words.
export function typeText(id: string): string {
  const [name, sample, unit] = id.split(":");
  if (!sample) return id;
  const plain = name.replaceAll("_", " ");
  const first = plain === sample || plain.endsWith(` ${sample}`) ? plain : `${plain} · ${sample.replaceAll("_", " ")}`;
  return `${first} (${unit})`;
}
