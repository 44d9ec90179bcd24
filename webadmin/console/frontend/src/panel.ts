// One flame graph with its table: what a side of a comparison shows, or the only one.

import { FlameChart, type Look, type Wishes } from "./chart";
import { frameAt, framesOf, hasCut, search, withCallers, type Found, type Frame } from "./frames";
import type { GraphAnswer } from "./server";
import { TopTable } from "./table";

export class Panel {
  readonly chart: FlameChart;
  private readonly table: TopTable;
  private readonly heading: HTMLElement;
  // All there is, and the focused part if it was asked for.
  whole: GraphAnswer | null = null;
  part: GraphAnswer | null = null;
  private partFocus = "";
  root: Frame | null = null;
  private drawn: GraphAnswer | null = null;
  private zoomed = "";

  constructor(
    readonly host: HTMLElement,
    label: string,
    wishes: Wishes & { function(name: string): void },
    tip: HTMLElement,
  ) {
    this.heading = host.querySelector(".fg-panel-title")!;
    this.chart = new FlameChart(host.querySelector(".fg-panel-chart")!, label, true, wishes, tip);
    this.table = new TopTable(host.querySelector(".fg-panel-table")!, wishes.function);
  }

  forget(): void {
    this.whole = this.part = this.drawn = this.root = null;
    this.partFocus = this.zoomed = "";
    this.chart.clear();
    this.table.clear();
  }

  take(answer: GraphAnswer, focus: string): void {
    if (focus && !answer.focus_lost) [this.part, this.partFocus] = [answer, focus];
    else this.whole = answer;
  }

  // Whether what is here shows the place without asking the server for what was cut from it.
  has(focus: string): boolean {
    if (!focus) return this.whole !== null;
    if (this.part && this.partFocus === focus) return true;
    for (const root of this.roots()) {
      const one = frameAt(root, focus);
      if (one && !one.isAbove && !hasCut(one)) return true;
    }
    return false;
  }

  private *roots(): Generator<Frame> {
    if (this.part?.focus) yield withCallers(framesOf(this.part.graph), this.part.focus, this.part.totals);
    if (this.whole) yield framesOf(this.whole.graph);
  }

  // Whether what is drawn is all there is, so that counting here counts everything.
  get isComplete(): boolean {
    const answer = this.whole;
    return answer !== null && !answer.graph.cut.length && answer.top.functions === answer.top.rows.length;
  }

  title(said: string): void {
    this.heading.hidden = !said;
    this.heading.textContent = said;
  }

  show(look: Look, focus: string, text: string, found: GraphAnswer | null): void {
    const answer = this.answerFor(focus);
    if (!answer) return;
    const isNew = answer !== this.drawn;
    if (isNew) {
      this.drawn = answer;
      const root = framesOf(answer.graph);
      this.root = answer.focus ? withCallers(root, answer.focus, answer.totals) : root;
      this.zoomed = "";
    }
    search(this.root!, text);
    const hadFocus = this.chart.hasFocus;
    if (isNew) this.chart.draw(this.root!, look);
    if (isNew ? focus : focus !== this.zoomed) {
      this.chart.recolour(look);
      const one = frameAt(this.root!, focus) ?? this.root!;
      this.chart.zoom(one);
      if (hadFocus) this.chart.focus(one);
    } else if (isNew && hadFocus) this.chart.focus(this.root);
    else if (!isNew) this.chart.recolour(look);
    this.zoomed = focus;
    const table = found ?? this.whole ?? answer;
    this.table.show(table, look.unit, text);
  }

  private answerFor(focus: string): GraphAnswer | null {
    if (!focus) return this.whole;
    if (this.part && this.partFocus === focus) return this.part;
    for (const answer of [this.drawn, this.part, this.whole]) {
      if (!answer) continue;
      const root = answer.focus ? withCallers(framesOf(answer.graph), answer.focus, answer.totals) : framesOf(answer.graph);
      const one = frameAt(root, focus);
      if (one && !one.isAbove && !hasCut(one)) return answer;
    }
    return this.whole ?? this.part;
  }

  count(text: string): Found {
    return search(framesOf(this.whole!.graph), text);
  }

  focused(focus: string): Frame | null {
    return this.root && focus ? frameAt(this.root, focus) : null;
  }
}
