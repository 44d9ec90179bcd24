// What the page shows, all of it in the query string: a link shows the same, and the back button goes back.

export type Compare = "" | "side" | "diff";
export type View = "both" | "flame" | "table";
export type Colours = "warm" | "distinct" | "redgreen";

export interface State {
  tenant: string;
  service: string;
  type: string;
  from: string;
  until: string;
  filters: string[];
  compare: Compare;
  rightFrom: string;
  rightUntil: string;
  rightFilters: string[];
  search: string;
  focus: string;
  fn: string;
  view: View;
  colours: Colours;
  zone: "utc" | "local";
}

const PLAIN: [keyof State, string, string][] = [
  ["tenant", "tenant", ""],
  ["service", "service", ""],
  ["type", "type", ""],
  ["from", "from", ""],
  ["until", "until", ""],
  ["compare", "compare", ""],
  ["rightFrom", "right_from", ""],
  ["rightUntil", "right_until", ""],
  ["search", "search", ""],
  ["focus", "focus", ""],
  ["fn", "function", ""],
  ["view", "view", "both"],
  ["colours", "colours", "warm"],
  ["zone", "zone", "utc"],
];
const ALLOWED: Partial<Record<keyof State, string[]>> = {
  compare: ["", "side", "diff"],
  view: ["both", "flame", "table"],
  colours: ["warm", "distinct", "redgreen"],
  zone: ["utc", "local"],
};

export function readState(query: string): State {
  const given = new URLSearchParams(query);
  const found: Record<string, unknown> = {
    filters: given.getAll("filter"),
    rightFilters: given.getAll("right_filter"),
  };
  for (const [key, name, otherwise] of PLAIN) {
    const value = given.get(name) ?? otherwise;
    const isOdd = ALLOWED[key]?.includes(value) === false || (key === "focus" && !/^([0-9a-f]{16})?$/.test(value));
    found[key] = isOdd ? otherwise : value;
  }
  return found as unknown as State;
}

export function writeState(state: State): string {
  const query = new URLSearchParams();
  for (const [key, name, otherwise] of PLAIN) {
    const value = state[key] as string;
    if (value !== otherwise) query.set(name, value);
  }
  for (const filter of state.filters) query.append("filter", filter);
  if (state.compare) for (const filter of state.rightFilters) query.append("right_filter", filter);
  return query.toString();
}

// The question that one side, or both over each other, asks the server.
export function question(state: State, side: "left" | "right" | "both"): URLSearchParams {
  const query = new URLSearchParams({
    tenant: state.tenant,
    service: state.service,
    type: state.type,
    from: state.from,
    until: state.until,
  });
  for (const filter of state.filters) query.append("filter", filter);
  if (side !== "left") {
    query.set("right_from", state.rightFrom || state.from);
    query.set("right_until", state.rightUntil || state.until);
    for (const filter of state.rightFilters) query.append("right_filter", filter);
  }
  if (side === "right") query.set("side", "right");
  if (side === "both") query.set("compare", "diff");
  return query;
}

export interface Filter {
  label: string;
  operator: string;
  value: string;
}

export const OPERATORS: Record<string, string> = {
  "=": "is",
  "!=": "is not",
  "=~": "matches",
  "!~": "does not match",
};

export function readFilter(text: string): Filter {
  let label = text.split(" ", 1)[0];
  let rest = text.slice(label.length + 1);
  if (text.startsWith('"')) {
    const quoted = /^"(?:[^"\\]|\\.)*"/.exec(text)?.[0] ?? '""';
    label = JSON.parse(quoted) as string;
    rest = text.slice(quoted.length + 1);
  }
  const operator = rest.split(" ", 1)[0];
  return { label, operator: operator in OPERATORS ? operator : "=", value: rest.slice(operator.length + 1) };
}

export function writeFilter(filter: Filter): string {
  const label = /^[A-Za-z_][\w.:/-]*$/.test(filter.label) ? filter.label : JSON.stringify(filter.label);
  return `${label} ${filter.operator} ${filter.value}`;
}
