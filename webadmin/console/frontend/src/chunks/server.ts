// What the timeline's page asks the server, and what it answers.

import { byId } from "../dom";

export interface Columns {
  width_ms: number;
  start_ms: number[];
  end_ms: number[];
  chunks: number[];
  segments: number[];
  bytes: number[];
  largest: number[];
  empty: number[];
  stable: number[];
  unstable: number[];
  deferred: number[];
  skipped: number[];
  quarantined: number[];
  misaligned: number[];
  changed: number[];
}

export interface Task {
  id: number;
  start_ms: number;
  end_ms: number;
  state: string;
  colour: string;
  needs: number[];
  chunks: number;
  segments: number;
  bytes: number;
  cost: number;
  priority: number;
  is_over_limit: boolean;
  cause: string;
  address: string;
}

export interface ChunkOverride {
  kind: "never" | "now";
  start_ms: number;
  end_ms: number;
  why: string;
  actor: string;
}

export interface Filled {
  as_of_ms: number;
  segment_bytes_max: number;
  segment_bytes_words: string;
  granularity: string;
  refusal: string;
  is_paused: boolean;
  whole: [number, number];
  stretch: [number, number];
  columns: Columns;
  tasks: { shown: Task[]; left_out: number };
  overrides: ChunkOverride[];
}

export type Answer = Filled | (Omit<Filled, "whole"> & { whole: null });

interface Setup {
  data: string;
  chunk: string;
  sign_in: string;
}

export const setup = JSON.parse(byId("timeline-setup").textContent || "{}") as Setup;

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly next: string,
  ) {
    super(message);
  }
}

async function fetched(address: string, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address, { signal, headers: { Accept: "application/json" }, credentials: "same-origin" });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer", "It may be starting again: ask once more in a moment.");
  }
  if (response.ok) return response;
  const reply = (await response.json().catch(() => ({}))) as { message?: string; next?: string };
  throw new Refused(response.status, reply.message ?? "The server failed; its log says why", reply.next ?? "Ask again.");
}

export async function askStretch(stretch: [number, number] | null, signal: AbortSignal): Promise<Answer> {
  const query = stretch ? `?from=${Math.floor(stretch[0])}&until=${Math.ceil(stretch[1])}` : "";
  return (await (await fetched(setup.data + query, signal)).json()) as Answer;
}

export async function askChunk(startMs: number): Promise<string> {
  return (await fetched(`${setup.chunk}${startMs}`)).text();
}
