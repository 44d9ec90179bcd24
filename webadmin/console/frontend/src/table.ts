// The functions with their own values and totals, sortable by each column.

import { fill, make } from "./dom";
import type { GraphAnswer, Row } from "./server";
import { countText, pointsText, shareText, shortName, valueText } from "./words";

const ROWS_FIRST = 200;

interface Column {
  title: string;
  about: string;
  value(row: Row): number;
  text(row: Row): string;
  more?(row: Row): string;
  share?(row: Row): number;
}

export class TopTable {
  private answer: GraphAnswer | null = null;
  private unit = "";
  private search = "";
  private column = 1;
  private isDescending = true;
  private isWhole = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly chosen: (name: string) => void,
  ) {}

  show(answer: GraphAnswer, unit: string, search: string): void {
    if (answer !== this.answer) this.isWhole = false;
    if (answer.totals.length !== this.answer?.totals.length) [this.column, this.isDescending] = [answer.totals.length === 1 ? 1 : 3, true];
    this.answer = answer;
    this.unit = unit;
    this.search = search;
    this.draw();
  }

  clear(): void {
    this.answer = null;
    fill(this.host);
  }

  private draw(): void {
    const answer = this.answer;
    if (!answer) return;
    const columns = answer.totals.length === 1 ? this.single(answer.totals[0]) : this.difference(answer.totals);
    const wanted = this.search.toLowerCase();
    const rows = answer.top.rows.filter((row) => row[0].toLowerCase().includes(wanted));
    const by = this.column === 0 ? null : columns[this.column - 1];
    const order = this.isDescending ? -1 : 1;
    rows.sort((left, right) => (by ? order * (by.value(left) - by.value(right)) : -order * left[0].localeCompare(right[0])));
    const shown = this.isWhole ? rows : rows.slice(0, ROWS_FIRST);
    const isPartly = answer.top.functions > answer.top.rows.length;
    fill(
      this.host,
      make(
        "div",
        { className: "fg-table-frame" },
        make(
          "table",
          { className: "fg-table" },
          make("caption", { className: "fg-hidden" }, "Functions with their own values and totals"),
          make("thead", {}, make("tr", {}, ...["Function", ...columns.map((one) => one.title)].map((title, place) => this.header(title, place, columns[place - 1]?.about)))),
          make("tbody", {}, ...shown.map((row) => this.row(row, columns))),
        ),
      ),
      rows.length
        ? null
        : make("p", { className: "lt-empty" }, this.search ? "No function has this in its name." : "No functions here."),
      shown.length < rows.length
        ? make("button", { type: "button", className: "lt-button fg-more", onclick: () => this.showAll() }, `Show all ${countText(rows.length)}`)
        : null,
      isPartly && shown.length === rows.length
        ? make("p", { className: "lt-foot" }, `${countText(answer.top.rows.length)} of ${countText(answer.top.functions)} functions: those with the largest values. Search to see others.`)
        : null,
    );
  }

  private showAll(): void {
    this.isWhole = true;
    this.draw();
  }

  private header(title: string, place: number, about = "Its name"): HTMLElement {
    const isSorted = place === this.column;
    const sign = isSorted ? (this.isDescending ? " ↓" : " ↑") : "";
    return make(
      "th",
      { scope: "col", "aria-sort": isSorted ? (this.isDescending ? "descending" : "ascending") : "none" },
      make("button", { type: "button", title: `${about}. Sort by it.`, onclick: () => this.sortBy(place) }, title + sign),
    );
  }

  private sortBy(place: number): void {
    this.isDescending = place === this.column ? !this.isDescending : true;
    this.column = place;
    this.draw();
    this.host.querySelectorAll<HTMLElement>("th button")[place]?.focus();
  }

  private row(row: Row, columns: Column[]): HTMLElement {
    return make(
      "tr",
      {},
      make(
        "th",
        { scope: "row" },
        make("button", { type: "button", className: "fg-function", title: `${row[0]}: show its callers and what it calls`, onclick: () => this.chosen(row[0]), "aria-label": row[0] }, shortName(row[0])),
      ),
      ...columns.map((column) => {
        const share = column.share?.(row) ?? 0;
        return make(
          "td",
          { title: column.more?.(row) ?? "", style: share ? `--share: ${Math.min(100, 100 * share).toFixed(1)}%` : null },
          column.text(row),
        );
      }),
    );
  }

  private single(whole: number): Column[] {
    return ["Self", "Total"].map((title, place) => ({
      title,
      about: place ? "With everything that it called" : "What it used itself",
      value: (row) => row[place + 1] as number,
      text: (row) => valueText(row[place + 1] as number, this.unit),
      more: (row) => shareText(row[place + 1] as number, whole),
      share: (row) => (whole ? (row[place + 1] as number) / whole : 0),
    }));
  }

  private difference(wholes: number[]): Column[] {
    const share = (row: Row, place: number) => {
      const whole = wholes[place > 2 ? 1 : 0];
      return whole ? (100 * (row[place] as number)) / whole : 0;
    };
    const column = (title: string, place: number, about: string): Column => ({
      title,
      about,
      value: (row) => share(row, place),
      text: (row) => share(row, place).toFixed(2),
      more: (row) => valueText(row[place] as number, this.unit),
    });
    const change = (title: string, left: number, about: string): Column => ({
      title,
      about,
      value: (row) => share(row, left + 2) - share(row, left),
      text: (row) => pointsText(share(row, left + 2) - share(row, left)),
      more: () => "percentage points of its side's total",
    });
    return [
      column("Self left %", 1, "Its own share of the left side"),
      column("Self right %", 3, "Its own share of the right side"),
      change("Self ±", 1, "How much its own share grew, in percentage points"),
      column("Total left %", 2, "Its share of the left side with what it called"),
      column("Total right %", 4, "Its share of the right side with what it called"),
      change("Total ±", 2, "How much its share with what it called grew, in percentage points"),
    ];
  }
}
