// The timeline of a table: what the address says is asked, drawn, and changed by what people do.

import "./chunk-timeline.css";
import { Drawing } from "./chunks/drawing";
import { fillOf, MEANINGS, STATES, stateWords, TASK_STATES } from "./chunks/looks";
import { askChunk, askStretch, Refused, setup, type Answer, type Filled, type Task } from "./chunks/server";
import { SKELETON } from "./chunks/skeleton";
import { showChunkTable, showTaskTable } from "./chunks/tables";
import { intervalText, lengthText, shortMoment } from "./chunks/words";
import { byId, fill, make } from "./dom";
import { countText, counted, sizeText } from "./words";

type View = [number, number];

const PAUSE_MS = 120;
const REFRESH_MS = 10_000;
const STEP = 0.5;
const AROUND = 0.25;
const DAY_MS = 86_400_000;

const host = byId("chunk-timeline");
host.innerHTML = SKELETON;
const tip = byId("ct-tip");

let answer: Filled | null = null;
let current = -1;
let opened: number | null = null;
let asking: AbortController | null = null;
let pause = 0;
let isFirst = true;

const drawing = new Drawing(byId("ct-host"), {
  moved(view, isOver) {
    hideTip();
    forgetQuestion();
    said(view);
    if (isOver) settle();
  },
  pointed: showTip,
  pointedTask: showTaskTip,
  left: hideTip,
  chosen: choose,
});

// --- asking --------------------------------------------------------------------------------------------------------

function wanted(): View | null {
  const query = new URLSearchParams(location.search);
  const view = ["from", "until"].map((name) => Number(query.get(name) || NaN));
  return view[0] < view[1] ? (view as View) : null;
}

function around([from, until]: View): View {
  const more = (until - from) * AROUND;
  return [from - more, until + more];
}

async function load(view: View | null): Promise<void> {
  asking?.abort();
  const mine = (asking = new AbortController());
  host.setAttribute("aria-busy", "true");
  try {
    const reply = await askStretch(view && around(view), mine.signal);
    if (asking !== mine) return;
    fill(byId("ct-message"));
    take(reply, view);
  } catch (error) {
    if ((error as Error).name !== "AbortError" && asking === mine) complain(error as Error);
  } finally {
    if (asking === mine) host.setAttribute("aria-busy", "false");
  }
}

function take(reply: Answer, view: View | null): void {
  notices(reply);
  byId("ct-empty").hidden = reply.whole !== null;
  byId("ct-host").hidden = reply.whole === null;
  if (reply.whole === null) {
    answer = null;
    fill(byId("ct-empty"), make("p", { className: "lt-nothing" }, "This table has no chunks yet. Register files by REST, or take a folder in with manage.py tables adopt: chunks appear as soon as files are known."));
    return;
  }
  const before = current >= 0 && answer ? answer.columns.start_ms[current] : null;
  answer = reply as Filled;
  current = before === null ? -1 : answer.columns.start_ms.indexOf(before);
  drawing.show(answer, view ?? answer.stretch);
  drawing.mark(current);
  said(drawing.view);
  if (isFirst) {
    isFirst = false;
    const chunk = new URLSearchParams(location.search).get("chunk");
    if (chunk !== null) void open(Number(chunk), false);
  }
}

function complain(error: Error): void {
  const refused = error instanceof Refused ? error : new Refused(0, `The page failed: ${error.message}`, "Load it again.");
  const text = refused.message.slice(0, 1).toUpperCase() + refused.message.slice(1);
  const next = encodeURIComponent(location.pathname + location.search);
  const button =
    refused.status === 401
      ? make("a", { className: "lt-link", href: `${setup.sign_in}?next=${next}` }, "Sign in")
      : refused.status === 400
        ? make("button", { type: "button", className: "lt-button", onclick: () => (remember(null), void load(null)) }, "Show the newest")
        : make("button", { type: "button", className: "lt-button", onclick: () => void load(answer ? drawing.view : wanted()) }, "Ask again");
  fill(byId("ct-message"), make("div", { className: "lt-notice lt-notice-bad" }, make("span", {}, `${text}${/[.!?]$/.test(text) ? "" : "."} ${refused.next}`), button));
}

function notices(reply: Answer): void {
  fill(
    byId("ct-notices"),
    reply.refusal && make("p", { className: "lt-notice lt-notice-bad" }, make("span", {}, `Nothing of this table is planned: ${reply.refusal}`)),
    reply.is_paused && make("p", { className: "lt-notice lt-notice-warn" }, make("span", {}, "This table is paused: nothing is planned.")),
  );
}

// --- moving --------------------------------------------------------------------------------------------------------

// An answer about where people were would take them back there; where they come to rest is asked for (settle).
function forgetQuestion(): void {
  asking?.abort();
  asking = null;
}

function settle(): void {
  clearTimeout(pause);
  pause = window.setTimeout(() => {
    remember(drawing.view);
    void load(drawing.view);
  }, PAUSE_MS);
}

function remember(view: View | null): void {
  const query = new URLSearchParams(location.search);
  for (const [place, name] of ["from", "until"].entries()) {
    if (view) query.set(name, String(Math.round(view[place])));
    else query.delete(name);
  }
  if (opened === null) query.delete("chunk");
  else query.set("chunk", String(opened));
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
}

function look(view: View): void {
  if (!answer) return;
  forgetQuestion();
  drawing.setView(view);
  said(drawing.view);
  settle();
}

function pan(share: number): void {
  const [from, until] = drawing.view;
  look([from + (until - from) * share, until + (until - from) * share]);
}

function zoomBy(factor: number): void {
  const [from, until] = drawing.view;
  const middle = answer && current >= 0 ? (answer.columns.start_ms[current] + answer.columns.end_ms[current]) / 2 : (from + until) / 2;
  const inView = Math.min(Math.max(middle, from), until);
  look([inView - (inView - from) * factor, inView + (until - inView) * factor]);
}

function everything(): void {
  if (answer) look([...answer.whole]);
}

function newest(): void {
  remember(null);
  void load(null);
}

function goTo(dayMs: number): void {
  const length = Math.min(drawing.view[1] - drawing.view[0], 60 * DAY_MS);
  look([dayMs + DAY_MS / 2 - length / 2, dayMs + DAY_MS / 2 + length / 2]);
}

// --- words ---------------------------------------------------------------------------------------------------------

function placesInView(): number[] {
  if (!answer) return [];
  const { start_ms, end_ms } = answer.columns;
  return start_ms.map((_, place) => place).filter((place) => end_ms[place] > drawing.view[0] && start_ms[place] < drawing.view[1]);
}

function said(view: View): void {
  if (!answer) return;
  const columns = answer.columns;
  byId("ct-range").textContent = `${shortMoment(view[0])} … ${shortMoment(view[1])} UTC`;
  byId("ct-columns").textContent = columns.width_ms
    ? `A column stands for the chunks that begin within ${lengthText(columns.width_ms)}: zoom in to see each.`
    : `Each column is one chunk (${answer.granularity}). Times are UTC.`;
  const places = placesInView();
  const sum = (name: keyof typeof MEANINGS): number => places.reduce((total, place) => total + columns[name][place], 0);
  const shown = [...STATES, "misaligned", "changed"] as (keyof typeof MEANINGS)[];
  const running = new Set(answer.tasks.shown.map((task) => task.state));
  fill(
    byId("ct-legend"),
    ...shown.map((state) => make("li", { title: MEANINGS[state], className: sum(state) ? "" : "ct-none" }, swatch(state), make("span", {}, `${state} `), make("b", {}, countText(sum(state))))),
    ...Object.keys(TASK_STATES)
      .filter((state) => running.has(state))
      .map((state) => make("li", { title: TASK_STATES[state] }, swatch(state), make("span", {}, `${state} task`))),
    running.size > 0 && make("li", { title: "may run at once" }, swatch("red"), "red: runs first"),
    running.size > 0 && make("li", { title: "waits for tasks of a smaller colour that it shares a segment with" }, swatch("black"), "black: after the red ones it is tied to"),
    answer.overrides.length > 0 && make("li", { title: "overrides by operators" }, swatch("override"), "override: never, or now"),
  );
  drawing.svgElement.setAttribute("aria-label", `Timeline from ${shortMoment(view[0])} until ${shortMoment(view[1])} UTC: ${STATES.filter((state) => sum(state)).map((state) => `${sum(state)} ${state}`).join(", ")}; ${answer.tasks.shown.length} open tasks`);
  showTaskTable(byId("ct-tasks"), answer, view);
  if (byId<HTMLDetailsElement>("ct-table").open) showChunkTable(byId("ct-rows"), answer, view, choose);
}

// Where the marks lie that stand at the edge of a chunk: y and height.
const MARKS: Record<string, [number, number]> = { misaligned: [9, 5], changed: [0, 4], override: [10, 4] };

function swatch(state: string): Node {
  const shown = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  shown.setAttribute("class", "ct-swatch");
  shown.setAttribute("aria-hidden", "true");
  const piece = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const [y, height] = MARKS[state] ?? [0, 14];
  piece.setAttribute("width", "14");
  piece.setAttribute("y", String(y));
  piece.setAttribute("height", String(height));
  piece.setAttribute("class", `ct-s-${state}`);
  if (!["misaligned", "changed", "red", "black", "override"].includes(state)) piece.style.fill = fillOf(state);
  shown.append(piece);
  return shown;
}

function columnWords(place: number): string {
  const columns = answer!.columns;
  const overrides = answer!.overrides.filter((override) => override.start_ms < columns.end_ms[place] && override.end_ms > columns.start_ms[place]);
  return [
    `${intervalText(columns.start_ms[place], columns.end_ms[place])}: ${stateWords(columns, place)}`,
    `${counted(columns.segments[place], "segment")}, ${sizeText(columns.bytes[place])}, the largest ${sizeText(columns.largest[place])}`,
    ...overrides.map((override) => `${override.kind === "never" ? "never compacted" : "to be compacted now"}, says ${override.actor}: ${override.why}`),
  ].join("\n");
}

function showTip(place: number, x: number): void {
  if (!answer || place < 0) return hideTip();
  tell(columnWords(place), x, byId("ct-host").getBoundingClientRect().top + 84);
}

function showTaskTip(task: Task | null, x: number, y: number): void {
  if (!task) return hideTip();
  const after = task.needs.length ? `\nafter ${task.needs.map((id) => `task ${id}`).join(", ")}: they share a segment` : "";
  const alone = task.is_over_limit ? "\nit costs more than a task should, and runs alone" : "";
  const words = `Task ${task.id}, ${task.state} (${TASK_STATES[task.state] ?? ""}), ${task.colour}\n${counted(task.chunks, "chunk")}, ${counted(task.segments, "segment")}, ${sizeText(task.bytes)}, priority ${task.priority.toFixed(3)}${after}${alone}\n${task.cause}`;
  tell(words, x, byId("ct-host").getBoundingClientRect().top + y + 18);
}

function tell(words: string, x: number, top: number): void {
  tip.textContent = words;
  tip.hidden = false;
  const left = byId("ct-host").getBoundingClientRect().left + x + 12;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.min(top, innerHeight - tip.offsetHeight - 8)}px`;
}

function hideTip(): void {
  tip.hidden = true;
}

// --- chunks --------------------------------------------------------------------------------------------------------

function step(by: number): void {
  if (!answer) return;
  const places = placesInView();
  if (!places.length) return;
  mark(current < 0 || !places.includes(current) ? (by > 0 ? places[0] : places[places.length - 1]) : current + by);
}

function mark(place: number): void {
  if (!answer || place < 0 || place >= answer.columns.start_ms.length) return;
  current = place;
  drawing.mark(place);
  byId("ct-said").textContent = columnWords(place).replaceAll("\n", "; ");
  const [from, until] = drawing.view;
  const { start_ms, end_ms } = answer.columns;
  const length = until - from;
  if (start_ms[place] < from) look([start_ms[place] - length * 0.1, start_ms[place] + length * 0.9]);
  else if (end_ms[place] > until) look([end_ms[place] - length * 0.9, end_ms[place] + length * 0.1]);
}

function choose(place: number): void {
  if (!answer) return;
  mark(place);
  const columns = answer.columns;
  if (!columns.width_ms) void open(columns.start_ms[place], true);
  else look([columns.start_ms[place] - columns.width_ms, columns.end_ms[place] + columns.width_ms]);
}

async function open(startMs: number, isAsked: boolean): Promise<void> {
  opened = startMs;
  remember(answer ? drawing.view : wanted());
  const place = answer ? answer.columns.start_ms.indexOf(startMs) : -1;
  const [panel, title, body] = [byId("ct-panel"), byId("ct-panel-title"), byId("ct-panel-body")];
  panel.hidden = false;
  title.textContent = answer && place >= 0 ? `Chunk ${intervalText(startMs, answer.columns.end_ms[place])}` : `Chunk from ${shortMoment(startMs)}`;
  if (place >= 0) {
    current = place;
    drawing.mark(place);
  }
  panel.setAttribute("aria-busy", "true");
  try {
    const markup = await askChunk(startMs);
    if (opened === startMs) body.innerHTML = markup; // the server's own template, which escapes what it is given
  } catch (error) {
    const refused = error as Refused;
    if (opened === startMs) fill(body, make("p", { className: "lt-notice lt-notice-bad" }, make("span", {}, `${refused.message}. ${refused.next ?? ""}`)));
  }
  panel.setAttribute("aria-busy", "false");
  if (isAsked && opened === startMs) {
    title.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  }
}

function close(): void {
  if (opened === null) return;
  opened = null;
  byId("ct-panel").hidden = true;
  remember(answer ? drawing.view : null);
  drawing.svgElement.focus({ preventScroll: true });
}

function openBeside(by: number): void {
  if (!answer || current < 0 || answer.columns.width_ms) return;
  const place = current + by;
  if (place < 0 || place >= answer.columns.start_ms.length) return;
  mark(place);
  void open(answer.columns.start_ms[place], false);
}

// --- what people do ------------------------------------------------------------------------------------------------

const KEYS: Record<string, (event: KeyboardEvent) => void> = {
  ArrowLeft: (event) => (event.shiftKey ? pan(-STEP) : step(-1)),
  ArrowRight: (event) => (event.shiftKey ? pan(STEP) : step(1)),
  PageUp: () => pan(-1),
  PageDown: () => pan(1),
  Home: () => mark(placesInView()[0] ?? -1),
  End: () => mark(placesInView().at(-1) ?? -1),
  "+": () => zoomBy(0.5),
  "=": () => zoomBy(0.5),
  "-": () => zoomBy(2),
  "0": everything,
  n: newest,
  Enter: () => choose(current),
  " ": () => choose(current),
  Escape: close,
  "?": () => (byId<HTMLDetailsElement>("ct-help").open = true),
};

drawing.svgElement.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  hideTip();
  KEYS[event.key](event);
});
byId("ct-panel").addEventListener("keydown", (event) => event.key === "Escape" && close());
const CLICKS: Record<string, () => void> = {
  "ct-earlier": () => pan(-STEP),
  "ct-later": () => pan(STEP),
  "ct-in": () => zoomBy(0.5),
  "ct-out": () => zoomBy(2),
  "ct-everything": everything,
  "ct-newest": newest,
  "ct-close": close,
  "ct-before": () => openBeside(-1),
  "ct-after": () => openBeside(1),
};
for (const [id, act] of Object.entries(CLICKS)) byId(id).addEventListener("click", act);
byId<HTMLInputElement>("ct-day").addEventListener("change", (event) => {
  const dayMs = (event.target as HTMLInputElement).valueAsNumber;
  if (!Number.isNaN(dayMs)) goTo(dayMs);
});
byId("ct-table").addEventListener("toggle", () => answer && said(drawing.view));
setInterval(() => {
  if (document.visibilityState === "visible" && host.getAttribute("aria-busy") !== "true" && tip.hidden) void load(answer ? drawing.view : wanted());
}, REFRESH_MS);

void load(wanted());
