// The timeline as a drawing: chunks as a band, sizes below it, tasks as bars; what is where, and where the pointer is.

import { axisBottom } from "d3-axis";
import { scaleUtc, type ScaleTime } from "d3-scale";
import { select, type Selection } from "d3-selection";
import { zoom, zoomIdentity, type D3ZoomEvent, type ZoomBehavior } from "d3-zoom";
import { countText, sizeText } from "../words";
import { DEFINITIONS, fillOf, STATES } from "./looks";
import type { Filled, Task } from "./server";

const EDGE = 10;
const AXIS = 30;
const LABEL = 22;
const BAND = 42;
const OVERRIDES = 8;
const BARS = 34;
const TASK = 20;
const TASK_ROWS_MAX = 12;
const TASK_WIDTH_MIN = 12;
const DEFERRED = 10;
const PIECE_MIN = 3;
const VIEW_MS_MIN = 60_000;

export interface Wishes {
  moved(view: [number, number], isOver: boolean): void;
  pointed(place: number, x: number): void;
  pointedTask(task: Task | null, x: number, y: number): void;
  left(): void;
  chosen(place: number): void;
}

type Layer = Selection<SVGGElement, unknown, null, undefined>;

export class Drawing {
  view: [number, number] = [0, 1];
  private whole: [number, number] = [0, 1];
  private answer: Filled | null = null;
  private width = 0;
  private current = -1;
  private isSet = false;
  private hasMoved = false;
  private readonly svg: Selection<SVGSVGElement, unknown, null, undefined>;
  private readonly layer: Layer;
  private readonly zoomer: ZoomBehavior<SVGSVGElement, unknown>;

  constructor(
    private readonly host: HTMLElement,
    private readonly wishes: Wishes,
  ) {
    host.innerHTML = `<svg class="ct-svg" role="application" aria-roledescription="timeline" tabindex="0" aria-describedby="ct-keys">${DEFINITIONS}<g></g></svg>`;
    this.svg = select(host).select<SVGSVGElement>("svg");
    this.layer = this.svg.select<SVGGElement>("g");
    this.zoomer = zoom<SVGSVGElement, unknown>()
      .clickDistance(4)
      .filter((event: MouseEvent | WheelEvent | TouchEvent) => !("button" in event && event.button))
      .on("zoom end", (event: D3ZoomEvent<SVGSVGElement, unknown>) => {
        if (!event.sourceEvent || this.isSet) return;
        const [from, until] = event.transform.rescaleX(this.base()).domain().map(Number);
        const isMoved = Math.abs(from - this.view[0]) >= 1 || Math.abs(until - this.view[1]) >= 1;
        // A click ends where it began: redrawing would remove the clicked element before its handler runs.
        if (isMoved) {
          this.view = [from, until];
          this.draw();
        }
        this.hasMoved ||= isMoved;
        if (isMoved || (event.type === "end" && this.hasMoved)) wishes.moved(this.view, event.type === "end");
        if (event.type === "end") this.hasMoved = false;
      });
    this.svg.call(this.zoomer);
    this.svg.on("mousemove", (event: MouseEvent) => this.point(event)).on("mouseleave", () => wishes.left());
    this.svg.on("click", (event: MouseEvent) => {
      const place = this.placeAt(this.x(event));
      if (place >= 0 && !(event.target as Element).closest("a")) wishes.chosen(place);
    });
    new ResizeObserver(() => this.resize()).observe(host);
  }

  get svgElement(): SVGSVGElement {
    return this.svg.node()!;
  }

  show(answer: Filled, view: [number, number]): void {
    const before = this.currentStart();
    this.answer = answer;
    this.whole = answer.whole;
    this.setView(view);
    this.current = before === null ? -1 : answer.columns.start_ms.indexOf(before);
    this.draw();
  }

  // Sets what is to be seen, within what there is.
  setView([from, until]: [number, number]): [number, number] {
    const [start, end] = this.whole;
    const margin = (end - start) * 0.02 + 1;
    const length = Math.min(Math.max(until - from, VIEW_MS_MIN), end - start + 2 * margin);
    const first = Math.min(Math.max(from, start - margin), end + margin - length);
    this.view = [first, first + length];
    this.place();
    this.draw();
    return this.view;
  }

  mark(place: number): void {
    this.current = place;
    this.draw();
  }

  // The border between the column at a place and what is left of it, on the page.
  xOf(place: number): number {
    return this.answer ? this.scale()(this.answer.columns.start_ms[place]) : 0;
  }

  private currentStart(): number | null {
    return this.answer && this.current >= 0 ? this.answer.columns.start_ms[this.current] : null;
  }

  private base(): ScaleTime<number, number> {
    const margin = (this.whole[1] - this.whole[0]) * 0.02 + 1;
    return scaleUtc()
      .domain([this.whole[0] - margin, this.whole[1] + margin])
      .range([EDGE, Math.max(this.width - EDGE, EDGE + 1)]);
  }

  private scale(): ScaleTime<number, number> {
    return scaleUtc()
      .domain(this.view)
      .range([EDGE, Math.max(this.width - EDGE, EDGE + 1)]);
  }

  // Set the zoom's position without an event.
  private place(): void {
    if (!this.width) return;
    const base = this.base();
    const [first, last] = base.range();
    const times = base.domain().map(Number);
    const factor = (times[1] - times[0]) / (this.view[1] - this.view[0]);
    this.zoomer
      .extent([[EDGE, 0], [last, 1]])
      .translateExtent([[EDGE, 0], [last, 1]])
      .scaleExtent([1, Math.max(1, (times[1] - times[0]) / VIEW_MS_MIN)]);
    this.isSet = true;
    this.svg.call(this.zoomer.transform, zoomIdentity.translate(first, 0).scale(factor).translate(-base(this.view[0]), 0));
    this.isSet = false;
  }

  private resize(): void {
    if (this.host.clientWidth === this.width) return;
    this.width = this.host.clientWidth;
    this.place();
    this.draw();
  }

  private x(event: MouseEvent): number {
    return event.clientX - this.svgElement.getBoundingClientRect().left;
  }

  private placeAt(x: number): number {
    if (!this.answer) return -1;
    const at = Number(this.scale().invert(x));
    const { start_ms, end_ms } = this.answer.columns;
    return start_ms.findIndex((start, place) => start <= at && at < end_ms[place]);
  }

  private point(event: MouseEvent): void {
    const bar = (event.target as Element).closest("a[data-task]");
    const task = bar && this.answer?.tasks.shown.find((one) => String(one.id) === bar.getAttribute("data-task"));
    if (task) this.wishes.pointedTask(task, this.x(event), event.offsetY);
    else this.wishes.pointed(this.placeAt(this.x(event)), this.x(event));
  }

  private draw(): void {
    const answer = this.answer;
    if (!answer || !this.width) return;
    const scale = this.scale();
    this.layer.selectAll("*").remove();
    let y = 0;
    y = this.drawAxis(scale, y);
    y = this.drawBand(answer, scale, y);
    const { segments, bytes, largest } = answer.columns;
    y = this.drawBars("Segments", segments, Math.max(1, ...seen(answer, this.view, segments)), countText, scale, y);
    y = this.drawBars("Bytes", bytes, Math.max(1, ...seen(answer, this.view, bytes)), sizeText, scale, y);
    y = this.drawLargest(answer, largest, scale, y);
    y = this.drawTasks(answer, scale, y);
    y = this.drawDeferred(answer, scale, y);
    this.drawCurrent(answer, scale, y);
    this.svg.attr("width", this.width).attr("height", y + 6).attr("viewBox", `0 0 ${this.width} ${y + 6}`);
  }

  private drawAxis(scale: ScaleTime<number, number>, y: number): number {
    const ticks = Math.max(2, Math.floor(this.width / 110));
    const axis = this.layer.append("g").attr("class", "ct-axis").attr("aria-hidden", "true").attr("transform", `translate(0 ${y + 2})`);
    axis.call(axisBottom<Date>(scale as never).ticks(ticks).tickSizeOuter(0) as never);
    return y + AXIS;
  }

  private label(text: string, more: string, y: number): number {
    this.layer.append("text").attr("class", "ct-label").attr("x", EDGE).attr("y", y + LABEL - 7).text(text);
    if (more) {
      this.layer.append("text").attr("class", "ct-scale").attr("x", this.width - EDGE).attr("y", y + LABEL - 7).attr("text-anchor", "end").text(more);
    }
    return y + LABEL;
  }

  private columnsAt(answer: Filled, scale: ScaleTime<number, number>): [number, number, number][] {
    const { start_ms, end_ms } = answer.columns;
    const found: [number, number, number][] = [];
    for (let place = 0; place < start_ms.length; place++) {
      if (end_ms[place] <= this.view[0] || start_ms[place] >= this.view[1]) continue;
      const left = Math.max(scale(start_ms[place]), EDGE);
      const wide = Math.min(scale(end_ms[place]), this.width - EDGE) - left;
      found.push([place, left, Math.max(wide - (wide > 4 ? 1 : 0), 0.5)]);
    }
    return found;
  }

  private rectangle(className: string, x: number, y: number, width: number, height: number, fill: string): Selection<SVGRectElement, unknown, null, undefined> {
    const made = this.layer.append("rect").attr("class", className);
    made.attr("x", x.toFixed(2)).attr("y", y.toFixed(2)).attr("width", width.toFixed(2)).attr("height", Math.max(height, 0).toFixed(2));
    return fill ? made.style("fill", fill) : made;
  }

  private drawBand(answer: Filled, scale: ScaleTime<number, number>, from: number): number {
    const y = this.label("Chunks", "", from);
    const columns = answer.columns;
    this.rectangle("ct-ground", EDGE, y, this.width - 2 * EDGE, BAND, "");
    for (const [place, left, wide] of this.columnsAt(answer, scale)) {
      let bottom = y + BAND;
      for (const [state, height] of heights(STATES.map((state) => columns[state][place]))) {
        bottom -= height;
        this.rectangle(`ct-piece ct-is-${STATES[state]}`, left, bottom, wide, height, fillOf(STATES[state]));
      }
      if (columns.misaligned[place]) this.rectangle("ct-misaligned", left, y + BAND - 5, wide, 5, "");
      if (columns.changed[place]) this.rectangle("ct-changed", left, y, wide, 3, "");
    }
    for (const override of answer.overrides) {
      if (override.end_ms <= this.view[0] || override.start_ms >= this.view[1]) continue;
      const left = Math.max(scale(override.start_ms), EDGE);
      const wide = Math.max(Math.min(scale(override.end_ms), this.width - EDGE) - left, 2);
      this.rectangle(`ct-override ct-override-${override.kind}`, left, y + BAND + 2, wide, OVERRIDES - 4, "");
    }
    return y + BAND + OVERRIDES;
  }

  private drawBars(title: string, values: number[], top: number, said: (value: number) => string, scale: ScaleTime<number, number>, from: number): number {
    const y = this.label(title, `up to ${said(top)} in a column`, from);
    for (const [place, left, wide] of this.columnsAt(this.answer!, scale)) {
      const height = values[place] ? Math.max((BARS * values[place]) / top, 1) : 0;
      if (height) this.rectangle("ct-bar", left, y + BARS - height, wide, height, "");
    }
    this.rectangle("ct-floor", EDGE, y + BARS, this.width - 2 * EDGE, 1, "");
    return y + BARS + 4;
  }

  private drawLargest(answer: Filled, values: number[], scale: ScaleTime<number, number>, from: number): number {
    const wanted = answer.segment_bytes_max;
    const top = Math.max(wanted * 1.2, ...seen(answer, this.view, values));
    const y = this.label("Largest segment", `the line is ${answer.segment_bytes_words}, the most that is wanted`, from);
    for (const [place, left, wide] of this.columnsAt(answer, scale)) {
      const height = values[place] ? Math.max((BARS * values[place]) / top, 1) : 0;
      if (height) this.rectangle(values[place] > wanted ? "ct-bar ct-too-large" : "ct-bar", left, y + BARS - height, wide, height, "");
    }
    this.rectangle("ct-wanted", EDGE, y + BARS - (BARS * wanted) / top, this.width - 2 * EDGE, 1, "");
    this.rectangle("ct-floor", EDGE, y + BARS, this.width - 2 * EDGE, 1, "");
    return y + BARS + 4;
  }

  private drawTasks(answer: Filled, scale: ScaleTime<number, number>, from: number): number {
    const inView = answer.tasks.shown.filter((task) => task.end_ms > this.view[0] && task.start_ms < this.view[1]);
    if (!inView.length) return from;
    const rows = packed(inView, scale);
    const shown = inView.filter((task) => rows.has(task.id));
    const more = answer.tasks.left_out + inView.length - shown.length;
    const y = this.label("Tasks", more ? `${countText(more)} more: zoom in, or see the table` : "", from);
    const bars = new Map<number, [number, number, number]>();
    for (const task of shown) {
      const left = Math.max(scale(task.start_ms), EDGE - 4);
      const wide = Math.max(Math.min(scale(task.end_ms), this.width - EDGE + 4) - left, TASK_WIDTH_MIN);
      bars.set(task.id, [left, y + rows.get(task.id)! * TASK, wide]);
    }
    for (const task of shown) this.drawTask(task, bars.get(task.id)!);
    for (const task of shown) {
      for (const needed of task.needs) {
        const [to, before] = [bars.get(task.id)!, bars.get(needed)];
        if (before) this.layer.append("path").attr("class", "ct-needs").attr("marker-end", "url(#ct-arrow)").attr("d", arrow(to, before));
      }
    }
    return y + (Math.max(...rows.values()) + 1) * TASK + 4;
  }

  private drawTask(task: Task, [left, y, wide]: [number, number, number]): void {
    const after = task.needs.length ? `, after ${task.needs.map((id) => `task ${id}`).join(", ")}` : "";
    const words = `Task ${task.id}: ${task.state}, ${task.colour}${after}`;
    const bar = this.layer.append("a").attr("href", task.address).attr("data-task", task.id).attr("class", `ct-task ct-task-${task.state}`).attr("tabindex", "-1").attr("aria-label", words);
    const height = TASK - 4;
    bar.append("rect").attr("x", left).attr("y", y).attr("width", wide).attr("height", height).attr("rx", 3).style("fill", fillOf(task.state));
    bar.append("rect").attr("class", task.colour === "red" ? "ct-red" : "ct-black").attr("x", left).attr("y", y).attr("width", 5).attr("height", height).attr("rx", 2);
    const text = [`${task.id} ${task.state} · ${task.colour}`, `${task.id} ${task.state}`, String(task.id)].find((one) => one.length * 6.4 + 14 < wide);
    if (text) {
      const ground = bar.append("rect").attr("class", "ct-task-ground").attr("x", left + 8).attr("y", y + 2).attr("width", text.length * 6.2 + 6).attr("height", height - 4).attr("rx", 2);
      if (task.state === "running" || task.state === "waiting") ground.remove();
      bar.append("text").attr("x", left + 11).attr("y", y + height - 4).text(text);
    }
  }

  private drawDeferred(answer: Filled, scale: ScaleTime<number, number>, from: number): number {
    const { deferred, start_ms, end_ms } = answer.columns;
    const runs: [number, number, number][] = [];
    for (const [place] of this.columnsAt(answer, scale)) {
      if (!deferred[place]) continue;
      const last = runs[runs.length - 1];
      if (last && last[1] === start_ms[place]) [last[1], last[2]] = [end_ms[place], last[2] + deferred[place]];
      else runs.push([start_ms[place], end_ms[place], deferred[place]]);
    }
    if (!runs.length) return from;
    const chunks = runs.reduce((sum, run) => sum + run[2], 0);
    const y = this.label("Put off until there is room", `${countText(chunks)} deferred`, from);
    for (const [start, end] of runs) {
      const left = Math.max(scale(start), EDGE);
      const wide = Math.max(Math.min(scale(end), this.width - EDGE) - left - 1, 1);
      this.rectangle("ct-put-off", left, y, wide, DEFERRED, fillOf("deferred")).attr("rx", 3);
    }
    return y + DEFERRED + 4;
  }

  private drawCurrent(answer: Filled, scale: ScaleTime<number, number>, bottom: number): void {
    if (this.current < 0 || this.current >= answer.columns.start_ms.length) return;
    const left = scale(answer.columns.start_ms[this.current]);
    const wide = Math.max(scale(answer.columns.end_ms[this.current]) - left, 2);
    if (left + wide < EDGE || left > this.width - EDGE) return;
    this.rectangle("ct-current", left - 1, AXIS + 2, wide + 1, bottom - AXIS - 2, "").attr("rx", 3);
  }
}

// What columns in view have.
function seen(answer: Filled, view: [number, number], values: number[]): number[] {
  const { start_ms, end_ms } = answer.columns;
  return values.filter((_, place) => end_ms[place] > view[0] && start_ms[place] < view[1]);
}

// The heights of a column's pieces: by share, but none so small that it is overlooked.
function heights(counts: number[]): [number, number][] {
  const there = counts.map((count, state) => [state, count] as [number, number]).filter(([, count]) => count);
  const sum = there.reduce((total, [, count]) => total + count, 0);
  const raised = there.map(([state, count]) => [state, Math.max((BAND * count) / sum, PIECE_MIN)] as [number, number]);
  const total = raised.reduce((all, [, height]) => all + height, 0);
  return raised.map(([state, height]) => [state, (BAND * height) / total]);
}

// A row for each bar, so that no two lie over each other; those for which there is none are left out.
function packed(tasks: Task[], scale: ScaleTime<number, number>): Map<number, number> {
  const ends: number[] = [];
  const rows = new Map<number, number>();
  for (const task of [...tasks].sort((one, other) => one.start_ms - other.start_ms || one.id - other.id)) {
    const left = scale(task.start_ms);
    let row = ends.findIndex((end) => end <= left);
    if (row < 0) row = ends.length;
    if (row >= TASK_ROWS_MAX) continue;
    ends[row] = Math.max(scale(task.end_ms), left + TASK_WIDTH_MIN) + 2;
    rows.set(task.id, row);
  }
  return rows;
}

function arrow(to: [number, number, number], before: [number, number, number]): string {
  const isLeft = before[0] < to[0];
  const [x1, y1] = [isLeft ? to[0] : to[0] + to[2], to[1] + (TASK - 4) / 2];
  const [x2, y2] = [isLeft ? before[0] + before[2] : before[0], before[1] + (TASK - 4) / 2];
  const middle = (x1 + x2) / 2;
  const bow = y1 === y2 ? y1 - 14 : (y1 + y2) / 2;
  return `M${x1.toFixed(1)} ${y1}Q${middle.toFixed(1)} ${bow} ${x2.toFixed(1)} ${y2}`;
}
