// The same as the drawing, as tables: for screen readers, and to read the numbers.

import { fill, make } from "../dom";
import { countText, sizeText } from "../words";
import { stateWords } from "./looks";
import type { Filled, Task } from "./server";
import { intervalText } from "./words";

const ROWS_MAX = 200;
const TASKS_MAX = 50;

function table(caption: string, headers: string[], rows: (string | Node)[][]): HTMLElement {
  return make(
    "div",
    { className: "lt-scroll", tabindex: 0, role: "region", "aria-label": caption },
    make(
      "table",
      { className: "lt-table" },
      make("thead", {}, make("tr", {}, ...headers.map((header) => make("th", { scope: "col" }, header)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))))),
    ),
  );
}

export function showChunkTable(host: HTMLElement, answer: Filled, view: [number, number], chosen: (place: number) => void): void {
  const columns = answer.columns;
  const places = columns.start_ms.map((_, place) => place).filter((place) => columns.end_ms[place] > view[0] && columns.start_ms[place] < view[1]);
  const rows = places.slice(-ROWS_MAX).reverse().map((place) => [
    make("button", { type: "button", className: "lt-link ct-row", onclick: () => chosen(place) }, intervalText(columns.start_ms[place], columns.end_ms[place])),
    stateWords(columns, place),
    countText(columns.chunks[place]),
    countText(columns.segments[place]),
    sizeText(columns.bytes[place]),
    sizeText(columns.largest[place]),
  ]);
  const more = places.length > ROWS_MAX ? make("p", { className: "lt-foot" }, `The newest ${ROWS_MAX} of ${countText(places.length)} columns: zoom in to see others.`) : null;
  fill(host, table("Chunks in view", ["From … until (UTC)", "State", "Chunks", "Segments", "Bytes", "Largest segment"], rows), more);
}

export function showTaskTable(host: HTMLElement, answer: Filled, view: [number, number]): void {
  const inView = answer.tasks.shown.filter((task) => task.end_ms > view[0] && task.start_ms < view[1]);
  if (!inView.length) {
    fill(host, make("p", { className: "lt-empty" }, "No task waits or runs in this time."));
    return;
  }
  const left = inView.length - Math.min(inView.length, TASKS_MAX) + answer.tasks.left_out;
  fill(
    host,
    table(
      "Tasks in view",
      ["Task", "State", "Colour", "After", "From … until (UTC)", "Segments", "Bytes", "Priority", "Why"],
      inView.slice(0, TASKS_MAX).map(taskRow),
    ),
    left > 0 && make("p", { className: "lt-foot" }, `${countText(left)} more: zoom in to see them.`),
  );
}

function taskRow(task: Task): (string | Node)[] {
  const state = task.is_over_limit ? `${task.state}, runs alone` : task.state;
  return [
    make("a", { className: "lt-link", href: task.address }, String(task.id)),
    state,
    task.colour,
    task.needs.length ? task.needs.join(", ") : "–",
    intervalText(task.start_ms, task.end_ms),
    countText(task.segments),
    sizeText(task.bytes),
    task.priority.toFixed(3),
    task.cause,
  ];
}
