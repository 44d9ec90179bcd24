// The frames of a flame graph: made from the server's columns, counted, and found by the number of their place.

import type { Columns } from "./server";

export interface Frame {
  name: string;
  // How wide it is drawn: the sum of both sides.
  value: number;
  totals: number[];
  own: number[];
  // Stands for children too small to show.
  isCut: boolean;
  // A caller of the focused part, drawn above it: its own totals are wider than it is drawn.
  isAbove: boolean;
  parent: Frame | null;
  children: Frame[];
  isMatch: boolean;
  // What the drawing library keeps here.
  hide?: boolean;
  fade?: boolean;
}

function frame(name: string, totals: number[], own: number[], parent: Frame | null): Frame {
  const value = totals.reduce((sum, one) => sum + one, 0);
  return { name, value, totals, own, isCut: false, isAbove: false, parent, children: [], isMatch: false };
}

export function framesOf(columns: Columns): Frame {
  const cut = new Set(columns.cut);
  const made: Frame[] = [];
  columns.parents.forEach((parent, place) => {
    const above = parent < 0 ? null : made[parent];
    const one = frame(
      columns.names[columns.refs[place]],
      columns.totals.map((side) => side[place]),
      columns.own.map((side) => side[place]),
      above,
    );
    one.isCut = cut.has(place);
    above?.children.push(one);
    made.push(one);
  });
  for (const one of made) if (one.children.length > 1) one.children.sort(byPlace);
  return made[0];
}

// By name, so that a function has its place in every picture; what was cut comes last.
function byPlace(left: Frame, right: Frame): number {
  if (left.isCut !== right.isCut) return left.isCut ? 1 : -1;
  return left.name < right.name ? -1 : left.name > right.name ? 1 : 0;
}

// Puts a part of a tree below its callers, which are as wide as the part and keep their own totals.
export function withCallers(part: Frame, path: { name: string; totals: number[] }[], wholeTotals: number[]): Frame {
  const focused = part.children[0];
  if (!focused) return part;
  const root = frame("total", wholeTotals, wholeTotals.map(() => 0), null);
  let above = root;
  for (const one of path.slice(0, -1)) {
    const caller = frame(one.name, one.totals, one.totals.map(() => 0), above);
    above.children = [caller];
    above = caller;
  }
  above.children = [focused];
  focused.parent = above;
  for (let one: Frame | null = above; one; one = one.parent) {
    one.value = focused.value;
    one.isAbove = true;
  }
  return root;
}

export function* everyFrame(root: Frame): Generator<Frame> {
  const waiting = [root];
  for (let one = waiting.pop(); one; one = waiting.pop()) {
    yield one;
    for (let place = one.children.length - 1; place >= 0; place--) waiting.push(one.children[place]);
  }
}

export function hasCut(root: Frame): boolean {
  for (const one of everyFrame(root)) if (one.isCut) return true;
  return false;
}

export function pathOf(one: Frame): Frame[] {
  const path: Frame[] = [];
  for (let above: Frame | null = one; above?.parent; above = above.parent) path.unshift(above);
  return path;
}

export interface Found {
  functions: number;
  totals: number[];
}

// Marks the frames whose name has the text in it, and counts a stack once, as the server does.
export function search(root: Frame, text: string): Found {
  const names = new Set<string>();
  const totals = root.totals.map(() => 0);
  const wanted = text.toLowerCase();
  const waiting: [Frame, boolean][] = [[root, false]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [one, isBelow] = next;
    one.isMatch = wanted !== "" && one.parent !== null && !one.isCut && one.name.toLowerCase().includes(wanted);
    if (one.isMatch) {
      names.add(one.name);
      if (!isBelow) one.totals.forEach((total, side) => (totals[side] += total));
    }
    for (const child of one.children) waiting.push([child, isBelow || one.isMatch]);
  }
  return { functions: names.size, totals };
}

const FACTOR = 0x100000001b3n;
const ROOT_ID = 0xcbf29ce484222325n;
const MASK = (1n << 64n) - 1n;
const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  return sum >>> 0;
});

function crc32(text: string): number {
  let sum = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) sum = (sum >>> 8) ^ CRC[(sum ^ byte) & 255];
  return (sum ^ 0xffffffff) >>> 0;
}

const sums = new Map<string, bigint>();

function below(id: bigint, name: string): bigint {
  let sum = sums.get(name);
  if (sum === undefined) sums.set(name, (sum = BigInt(crc32(name))));
  return (id * FACTOR + sum) & MASK;
}

// The number of a place, as engine/query/flame/frame_paths.py has it; "" for everything.
export function placeId(one: Frame): string {
  const path = pathOf(one);
  if (!path.length) return "";
  const id = path.reduce((above, each) => below(above, each.name), ROOT_ID);
  return id.toString(16).padStart(16, "0");
}

export function frameAt(root: Frame, id: string): Frame | null {
  if (!id) return root;
  const wanted = BigInt(`0x${id}`);
  const waiting: [Frame, bigint][] = [[root, ROOT_ID]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [one, own] = next;
    if (own === wanted && one.parent && !one.isCut) return one;
    for (const child of one.children) waiting.push([child, below(own, child.name)]);
  }
  return null;
}
