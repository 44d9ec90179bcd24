// Colours of frames. Differences go from blue to orange, which no common colour blindness mixes up; red and green are a
// choice of their own. A search never speaks by colour alone.

import type { Frame } from "./frames";
import type { Colours } from "./state";

// After Okabe and Ito's set, lightened so that black text stays readable.
const DISTINCT = ["#e8b04f", "#8cc8ec", "#5cbf9b", "#f1e583", "#7fa8d1", "#ea9a6b", "#dba6c4", "#bdbdbd"];

// What a function belongs to: all before the last part of its name.
export function packageOf(name: string): string {
  const bare = name.replace(/[<([{].*$/, "");
  const end = Math.max(bare.lastIndexOf("."), bare.lastIndexOf("::"), bare.lastIndexOf("/"), bare.lastIndexOf("!"));
  return end > 0 ? bare.slice(0, end) : bare;
}

function hash(text: string): number {
  let sum = 2166136261;
  for (let place = 0; place < text.length; place++) sum = Math.imul(sum ^ text.charCodeAt(place), 16777619);
  return sum >>> 0;
}

export function colourOf(one: Frame, colours: Colours, wholeTotals: number[]): string {
  if (one.isCut) return "url(#fg-cut)";
  if (wholeTotals.length === 2) return differenceColour(change(one, wholeTotals), colours);
  if (!one.parent) return "#c9c4bd";
  const number = hash(packageOf(one.name));
  if (colours === "distinct") return DISTINCT[number % DISTINCT.length];
  const shade = hash(one.name);
  return `hsl(${18 + (number % 37)} ${62 + (shade % 18)}% ${63 + ((shade >>> 8) % 12)}%)`;
}

// How much of its side a frame gained, from -1 (all gone) to 1 (new).
export function change(one: { totals: number[] }, wholeTotals: number[]): number {
  const left = wholeTotals[0] ? one.totals[0] / wholeTotals[0] : 0;
  const right = wholeTotals[1] ? one.totals[1] / wholeTotals[1] : 0;
  return left + right ? (right - left) / Math.max(left, right) : 0;
}

export function differenceColour(gained: number, colours: Colours): string {
  const strength = Math.min(1, Math.abs(gained)) ** 0.6;
  if (strength < 0.05) return "#d6d3ce";
  const [more, less] = colours === "redgreen" ? [[4, 75], [125, 45]] : [[28, 90], [212, 75]];
  const [hue, saturation] = gained > 0 ? more : less;
  return `hsl(${hue} ${Math.round(saturation * (0.45 + 0.55 * strength))}% ${Math.round(86 - 26 * strength)}%)`;
}
