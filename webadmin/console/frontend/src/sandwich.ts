// One function between its callers and what it calls, both as flame graphs that begin with it.

import { load, lastAsked } from "./asking";
import { FlameChart, type Look } from "./chart";
import { byId, fill, make } from "./dom";
import { framesOf, type Frame } from "./frames";
import { ask, askFile, type SandwichAnswer } from "./server";
import { go, graphQuestion, now, unit } from "./session";
import { question } from "./state";
import { shareText, valueText } from "./words";

export class Sandwich {
  look: Look = { colours: "warm", unit: "", wholeTotals: [0], isSearching: false };
  readonly callees: FlameChart;
  private readonly callers: FlameChart;

  constructor(tip: HTMLElement, current: (one: Frame | null) => void) {
    const other = (one: Frame) => {
      if (one.parent && !one.isCut && one.name !== now.state.fn) go({ fn: one.name });
    };
    const wishes = { zoom: other, sandwich: other, zoomOut: () => go({ fn: "" }), current };
    this.callers = new FlameChart(byId("fg-callers"), "Callers", false, wishes, tip);
    this.callees = new FlameChart(byId("fg-callees"), "What it calls", true, wishes, tip);
  }

  show(): void {
    const query = now.file ? graphQuestion("left") : question(now.state, now.state.compare ? "both" : "left");
    query.set("function", now.state.fn);
    const key = `${now.file?.file.name ?? ""} ${query}`;
    if (lastAsked("sandwich") === key) {
      this.look = { ...this.look, colours: now.state.colours };
      this.callers.recolour(this.look);
      this.callees.recolour(this.look);
      return;
    }
    const fetched = async (signal: AbortSignal): Promise<SandwichAnswer> => {
      if (!now.file) return ask<SandwichAnswer>("sandwich", query, signal);
      query.set("show", "sandwich");
      return (await askFile(now.file.file, query, signal)).json();
    };
    void load("sandwich", key, fetched, (answer) => this.draw(answer));
  }

  private draw(answer: SandwichAnswer): void {
    this.look = { colours: now.state.colours, unit: unit(), wholeTotals: answer.totals, isSearching: false };
    const shares = answer.function_totals.map((total, side) => `${valueText(total, unit())}, ${shareText(total, answer.totals[side])}`);
    fill(
      byId("fg-sandwich-head"),
      make("button", { type: "button", className: "lt-button", onclick: () => go({ fn: "" }) }, "← All functions"),
      make("strong", { className: "fg-function-name" }, answer.function),
      make("span", {}, shares.length > 1 ? `left ${shares[0]} · right ${shares[1]}` : `${shares[0]} of the total`),
    );
    const trees = [framesOf(answer.callers), framesOf(answer.callees)].map((root) => {
      const own = root.children[0] ?? root;
      own.parent = null;
      return own;
    });
    this.callers.draw(trees[0], this.look);
    this.callees.draw(trees[1], this.look);
    this.callees.focus();
  }
}
