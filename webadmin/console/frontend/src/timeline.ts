// The total over time, to see when something happened and to choose a range with the mouse.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { TimelineAnswer } from "./server";
import { momentText, valueText, type Zone } from "./words";

const HEIGHT = 96;

export class Timeline {
  private plot: uPlot | null = null;
  private answer: TimelineAnswer | null = null;
  private unit = "";
  private zone: Zone = "utc";
  private range: [number, number] | null = null;

  constructor(
    private readonly host: HTMLElement,
    private readonly readout: HTMLElement,
    private readonly chosen: (startMs: number, endMs: number) => void,
  ) {
    new ResizeObserver(() => {
      if (this.plot && host.clientWidth) this.plot.setSize({ width: host.clientWidth, height: HEIGHT });
      else if (this.answer) this.draw();
      this.mark();
    }).observe(host);
    new MutationObserver(() => this.draw()).observe(document.documentElement, { attributeFilter: ["class"] });
  }

  // ``range`` is what the graph shows of it, if that is less.
  show(answer: TimelineAnswer, unit: string, zone: Zone, range: [number, number] | null): void {
    this.answer = answer;
    this.unit = unit;
    this.zone = zone;
    this.range = range;
    this.draw();
  }

  clear(): void {
    this.plot?.destroy();
    this.plot = null;
    this.answer = null;
  }

  private draw(): void {
    this.plot?.destroy();
    this.plot = null;
    const answer = this.answer;
    if (!answer || !this.host.clientWidth) return;
    const style = getComputedStyle(this.host);
    const [line, quiet, bar] = ["--lt-line", "--lt-quiet", "--fg-bar"].map((name) => style.getPropertyValue(name).trim());
    const count = Math.max(1, Math.ceil((answer.end_ms - answer.start_ms + 1) / answer.step_ms));
    const times = Array.from({ length: count }, (_, place) => (answer.start_ms + (place + 0.5) * answer.step_ms) / 1000);
    const values = new Array<number>(count).fill(0);
    for (const [at, value] of answer.bars) {
      const place = Math.floor((at - answer.start_ms) / answer.step_ms);
      if (place >= 0 && place < count) values[place] += value;
    }
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px sans-serif" };
    this.plot = new uPlot(
      {
        width: this.host.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        tzDate: (seconds) => (this.zone === "utc" ? uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC") : new Date(seconds * 1e3)),
        cursor: { y: false, drag: { x: true, y: false, setScale: false } },
        select: { show: true, left: 0, top: 0, width: 0, height: 0 },
        scales: {
          x: { time: true, range: [answer.start_ms / 1000, Math.max(answer.end_ms, answer.start_ms + 1) / 1000] },
          y: { range: (_plot, _min, max) => [0, max || 1] },
        },
        padding: [8, 28, 0, 0],
        axes: [{ ...axis, size: 28, space: 90, values: (_plot, ticks) => ticks.map((tick) => this.tickText(tick, ticks)) }, { ...axis, size: 76, space: 24, values: (_plot, ticks) => ticks.map((tick) => valueText(tick, this.unit)) }],
        series: [
          {},
          { stroke: bar, fill: bar, width: 0, points: { show: false }, paths: uPlot.paths.bars!({ size: [0.86, 40], align: 0 }) },
        ],
        hooks: {
          ready: [(plot) => this.mark(plot)],
          setSelect: [(plot) => this.selected(plot)],
          setCursor: [(plot) => this.pointed(plot, values)],
        },
      },
      [times, values],
      this.host,
    );
  }

  private mark(plot = this.plot): void {
    if (!plot) return;
    const [left, right] = this.range ? this.range.map((ms) => plot.valToPos(ms / 1000, "x")) : [0, 0];
    plot.setSelect({ left, top: 0, width: Math.max(right - left, 0), height: plot.over.clientHeight }, false);
  }

  // A day where one begins, a time elsewhere; seconds only where the ticks are so close.
  private tickText(tick: number, ticks: number[]): string {
    const [day, time] = momentText(tick * 1000, this.zone).split(" ");
    const apart = ticks.length > 1 ? ticks[1] - ticks[0] : 0;
    if (apart >= 86_400 || time === "00:00:00") return day;
    return apart < 60 ? time : time.slice(0, 5);
  }

  private selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 3) {
      this.mark();
      return;
    }
    const [start, end] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")].map((seconds) => Math.round(seconds * 1000));
    this.mark();
    this.chosen(start, Math.max(end, start + 1));
  }

  private pointed(plot: uPlot, values: number[]): void {
    const place = plot.cursor.idx;
    this.readout.textContent = place == null ? "" : valueText(values[place], this.unit);
  }
}
