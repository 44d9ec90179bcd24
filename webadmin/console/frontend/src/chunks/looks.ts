// How states look: a colour that no common colour blindness mixes up with its neighbours, a pattern of its own, a word.

import type { Columns } from "./server";

export type State = "stable" | "empty" | "skipped" | "deferred" | "unstable" | "quarantined";

// From the bottom of a column to its top: what needs attention stands on top.
export const STATES: State[] = ["stable", "empty", "skipped", "deferred", "unstable", "quarantined"];

export const MEANINGS: Record<State | "misaligned" | "changed", string> = {
  stable: "not worth compacting",
  empty: "no rows",
  skipped: "not analysed: hot, excluded or unbounded",
  deferred: "worth compacting, deferred until fewer tasks wait",
  unstable: "worth compacting: in a task, or soon",
  quarantined: "quarantined after failures, until released",
  misaligned: "shares segments with adjacent chunks",
  changed: "changed since its analysis",
};

export const TASK_STATES: Record<string, string> = {
  running: "leased to a worker",
  waiting: "ready, waits for free limits or a slot",
  blocked: "waits for tasks that share a segment with it",
  parked: "failed, waits for an operator",
};

// Every fill is either a colour or one of these patterns, so that states differ without colour too.
export const DEFINITIONS = `
<defs>
  <pattern id="ct-p-empty" width="6" height="6" patternUnits="userSpaceOnUse"><rect class="ct-f-empty" width="6" height="6"></rect><circle class="ct-i-empty" cx="3" cy="3" r=".8"></circle></pattern>
  <pattern id="ct-p-skipped" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="ct-f-skipped" width="5" height="5"></rect><rect class="ct-i-skipped" y="2" width="5" height="1"></rect></pattern>
  <pattern id="ct-p-deferred" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="ct-f-deferred" width="7" height="7"></rect><rect class="ct-i-deferred" width="2.4" height="7"></rect></pattern>
  <pattern id="ct-p-quarantined" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="ct-f-quarantined" width="6" height="6"></rect><path class="ct-l-quarantined" d="M0 0V6M0 0H6"></path></pattern>
  <pattern id="ct-p-blocked" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect class="ct-f-blocked" width="6" height="6"></rect><rect class="ct-i-blocked" width="2" height="6"></rect></pattern>
  <pattern id="ct-p-parked" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="ct-f-parked" width="6" height="6"></rect><path class="ct-l-quarantined" d="M0 0V6M0 0H6"></path></pattern>
  <marker id="ct-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="ct-arrow" d="M0 0L8 4L0 8z"></path></marker>
</defs>`;

const PATTERNED = new Set<string>(["empty", "skipped", "deferred", "quarantined", "blocked", "parked"]);

export function fillOf(state: string): string {
  return PATTERNED.has(state) ? `url(#ct-p-${state})` : `var(--ct-${state})`;
}

// The states of a column in words: "stable", or "118 stable, 2 deferred" where it stands for several chunks.
export function stateWords(columns: Columns, place: number): string {
  const there = STATES.filter((state) => columns[state][place]);
  const isOne = columns.chunks[place] === 1;
  const words = there.map((state) => (isOne ? state : `${columns[state][place]} ${state}`));
  for (const mark of ["misaligned", "changed"] as const) {
    if (columns[mark][place]) words.push(isOne ? mark : `${columns[mark][place]} ${mark}`);
  }
  return words.join(", ");
}
