// Asks the server; what it refuses comes as an error that says what to do next.

export interface Columns {
  names: string[];
  parents: number[];
  refs: number[];
  own: number[][];
  totals: number[][];
  cut: number[];
}

export interface Damage {
  object: string;
  tenant: string;
  service: string;
  code: string;
  reason: string;
}

export interface Report {
  objects_opened: number;
  datasets_read: number;
  requests: number;
  bytes_read: number;
  rows_read: number;
  ms: number;
  phases_ms: Record<string, number>;
  damage: Damage[];
}

export type Row = [string, ...number[]];

export interface GraphAnswer {
  totals: number[];
  graph: Columns;
  focus: { name: string; totals: number[] }[] | null;
  focus_lost: boolean;
  search: { text: string; functions: number; totals: number[] } | null;
  top: { functions: number; rows: Row[] };
  ranges?: { start_ms: number; end_ms: number }[];
  unit?: string;
  sample_type?: string;
  report?: Report;
  sample_types?: { type: string; unit: string }[];
  sample?: number;
}

export interface SandwichAnswer {
  function: string;
  totals: number[];
  function_totals: number[];
  callers: Columns;
  callees: Columns;
  report?: Report;
}

export interface TimelineAnswer {
  step_ms: number;
  start_ms: number;
  end_ms: number;
  bars: [number, number][];
  report: Report;
}

export interface Service {
  name: string;
  oldest_ms: number;
  newest_ms: number;
  types: string[];
}

export interface Setup {
  tenants: string[];
  addresses: Record<"known" | "labels" | "timeline" | "graph" | "sandwich" | "export" | "open-file", string>;
  file_bytes_max: number;
  sign_in: string;
}

export const setup = JSON.parse(document.getElementById("flame-setup")!.textContent!) as Setup;

export class Refused extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly next: string,
  ) {
    super(message);
  }
}

export async function ask<T>(what: keyof Setup["addresses"], query: URLSearchParams, signal?: AbortSignal): Promise<T> {
  return (await answered(fetch(`${setup.addresses[what]}?${query}`, { signal, credentials: "same-origin" }))).json();
}

export function exportAddress(query: URLSearchParams, form: string): string {
  const asked = new URLSearchParams(query);
  asked.set("form", form);
  return `${setup.addresses.export}?${asked}`;
}

export async function askFile(file: Blob, query: URLSearchParams, signal?: AbortSignal): Promise<Response> {
  if (file.size > setup.file_bytes_max) {
    const most = Math.round(setup.file_bytes_max / 1048576);
    throw new Refused("file_too_large", `The file has more than ${most} MiB.`, "Choose a smaller file, or open it with go tool pprof.");
  }
  const token = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? "";
  return answered(
    fetch(`${setup.addresses["open-file"]}?${query}`, {
      method: "POST",
      body: file,
      signal,
      credentials: "same-origin",
      headers: { "X-CSRFToken": token, "Content-Type": "application/octet-stream" },
    }),
  );
}

async function answered(asked: Promise<Response>): Promise<Response> {
  let response: Response;
  try {
    response = await asked;
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Refused("no_answer", "The server did not answer.", "Check that it runs and that you are connected, then ask again.");
  }
  if (response.ok) return response;
  let reply: { code?: string; message?: string; next?: string } = {};
  try {
    reply = await response.json();
  } catch {
    reply = { message: `The server answered with status ${response.status}.` };
  }
  throw new Refused(reply.code ?? "unknown", reply.message ?? "The server refused.", reply.next ?? "Ask again.");
}
