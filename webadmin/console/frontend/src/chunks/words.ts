// Intervals of the timeline as people read them, in UTC.

import { momentText } from "../words";

const HOUR_MS = 3_600_000;
const UNITS: [number, string][] = [
  [24 * HOUR_MS, "d"],
  [HOUR_MS, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

// Without the parts of a moment that say nothing: midnight, seconds of 0.
export function shortMoment(ms: number): string {
  const text = momentText(ms, "utc");
  return text.endsWith(" 00:00:00") ? text.slice(0, 10) : text.endsWith(":00") ? text.slice(0, 16) : text;
}

export function intervalText(startMs: number, endMs: number): string {
  return `${shortMoment(startMs)} … ${shortMoment(endMs)}`;
}

export function lengthText(ms: number): string {
  for (const [unit, name] of UNITS) if (ms >= unit) return `${Math.round((10 * ms) / unit) / 10}\u00a0${name}`;
  return `${ms}\u00a0ms`;
}
