// What is shown: the state in the address, the services there are, a file if one is open.

import { byId, fill } from "./dom";
import type { Service } from "./server";
import { question, readState, writeState, type State } from "./state";

export type Place = "left" | "right";

export interface Range {
  from: string;
  until: string;
}

interface Session {
  state: State;
  services: Service[];
  // A file from this disk in place of what is stored; sample -1 is the type that the file names.
  file: { file: File; sample: number } | null;
  fileUnit: string;
}

const FIRST_CHOICE = /^process_cpu:cpu:/;
const HOUR_MS = 3.6e6;
const DAY_MS = 8.64e7;

export const now: Session = { state: readState(location.search), services: [], file: null, fileUnit: "" };
let changed: () => void = () => {};

export function onChange(listener: () => void): void {
  changed = listener;
  addEventListener("popstate", () => {
    now.state = readState(location.search);
    listener();
  });
}

export function go(part: Partial<State>, isReplacing = false): void {
  if (!isReplacing) fill(byId("fg-message"));
  now.state = { ...now.state, ...part };
  const address = `${location.pathname}?${writeState(now.state)}`;
  if (isReplacing || address === location.pathname + location.search) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  changed();
}

export function everything(): Range | null {
  const known = now.services.filter((service) => !now.state.service || service.name === now.state.service);
  if (!known.length) return null;
  const from = Math.min(...known.map((service) => service.oldest_ms));
  const until = Math.max(...known.map((service) => service.newest_ms));
  return { from: String(Math.max(from, 1_000)), until: String(Math.max(until, 1_000)) };
}

export function typeOf(name: string): string {
  const types = typesOf(name);
  return types.includes(now.state.type) ? now.state.type : (types.find((type) => FIRST_CHOICE.test(type)) ?? types[0] ?? "");
}

export function typesOf(name: string): string[] {
  const known = now.services.filter((service) => !name || service.name === name);
  return [...new Set(known.flatMap((service) => service.types))].sort();
}

// Chooses what the address leaves open: the service with the newest data, CPU time, and a range that has data.
export function settle(): void {
  const part: Partial<State> = {};
  const newest = [...now.services].sort((left, right) => right.newest_ms - left.newest_ms)[0];
  if (!now.state.service && !now.state.type && newest) part.service = newest.name;
  const name = part.service ?? now.state.service;
  if (!now.state.type) part.type = typeOf(name);
  if (!now.state.from || !now.state.until) {
    const known = now.services.find((service) => service.name === name) ?? newest;
    const isFresh = !known || Date.now() - known.newest_ms < HOUR_MS;
    const all = known && { from: String(Math.max(known.oldest_ms, known.newest_ms - DAY_MS, 1_000)), until: String(known.newest_ms) };
    Object.assign(part, isFresh ? { from: "now-1h", until: "now" } : all);
  }
  if (Object.keys(part).length) {
    now.state = { ...now.state, ...part };
    history.replaceState(null, "", `${location.pathname}?${writeState(now.state)}`);
  }
}

export function graphQuestion(place: Place): URLSearchParams {
  if (now.file) return new URLSearchParams(now.file.sample < 0 ? {} : { sample: String(now.file.sample) });
  return question(now.state, now.state.compare === "diff" ? "both" : place);
}

export function unit(): string {
  return now.file ? now.fileUnit : (now.state.type.split(":")[2] ?? "");
}

export function isSideBySide(): boolean {
  return now.state.compare === "side" && !now.file;
}
