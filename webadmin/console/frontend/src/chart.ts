// One flame graph on the page: drawn by d3-flame-graph, and reachable with the keyboard.

import flamegraph, { type Chart, type DrawnFrame } from "d3-flame-graph";
import { select } from "d3-selection";
import { prefersStill } from "./dom";
import type { Frame } from "./frames";
import { change, colourOf } from "./palette";
import type { Colours } from "./state";
import { pointsText, shareText, shortName, valueText } from "./words";

export const ROW_HEIGHT = 20;
const FRAME_WIDTH_MIN = 0.6;
const ANIMATION_MS = prefersStill ? 0 : 200;

export interface Look {
  colours: Colours;
  unit: string;
  // The totals of all there is, which shares are of.
  wholeTotals: number[];
  isSearching: boolean;
}

export interface Wishes {
  zoom(one: Frame): void;
  zoomOut(): void;
  sandwich(one: Frame): void;
  current(one: Frame | null): void;
}

export class FlameChart {
  private chart: Chart<Frame> | null = null;
  private root: Frame | null = null;
  private look: Look = { colours: "warm", unit: "", wholeTotals: [0], isSearching: false };
  private elements = new Map<Frame, SVGGElement>();
  private current: Frame | null = null;
  private width = 0;
  private isPressed = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly label: string,
    private readonly isInverted: boolean,
    private readonly wishes: Wishes,
    private readonly tip: HTMLElement,
  ) {
    host.classList.add("fg-chart");
    // Before the library, which would zoom into what is not there yet.
    host.addEventListener("click", (event) => this.clicked(event), true);
    host.addEventListener("keydown", (event) => this.pressed(event));
    host.addEventListener("mousemove", (event) => this.pointed(event));
    host.addEventListener("mouseleave", () => (this.tip.hidden = true));
    // What is said of a frame may cover it: not before the button is up again, or it would take the click.
    host.addEventListener("pointerdown", () => (this.isPressed = true));
    addEventListener("pointerup", () => (this.isPressed = false));
    addEventListener("pointercancel", () => (this.isPressed = false));
    host.addEventListener("focusin", (event) => {
      const one = this.frameOf(event.target);
      if (one && !this.isPressed) this.setCurrent(one);
    });
    new ResizeObserver(() => this.fit()).observe(host);
  }

  draw(root: Frame, look: Look): void {
    this.root = root;
    this.look = look;
    this.chart?.destroy();
    this.current = null;
    this.width = this.host.clientWidth;
    this.chart = flamegraph<Frame>()
      .width(Math.max(this.width, 100))
      .cellHeight(ROW_HEIGHT)
      .minFrameSize(FRAME_WIDTH_MIN)
      .transitionDuration(ANIMATION_MS)
      .inverted(this.isInverted)
      .sort(false)
      .tooltip(false)
      .resetHeightOnZoom(true)
      .getName((one) => shortName(one.data.name))
      .setLabelHandler((one) => one.data.name)
      .setColorMapper((one) => colourOf(one.data, this.look.colours, this.look.wholeTotals));
    this.chart(select(this.host).datum(root));
    this.dress();
  }

  recolour(look: Look): void {
    this.look = look;
    this.chart?.update();
    this.dress();
  }

  zoom(one: Frame): void {
    const drawn = this.drawn().find((each) => each.data === one);
    if (!drawn) return;
    this.chart?.zoomTo(drawn);
    this.dress();
  }

  focus(one: Frame | null = this.current): void {
    (this.elements.get(one ?? this.root!) ?? this.elements.get(this.root!))?.focus();
  }

  get hasFocus(): boolean {
    return this.host.contains(document.activeElement);
  }

  clear(): void {
    this.chart?.destroy();
    this.chart = null;
    this.root = null;
    this.elements.clear();
  }

  // The frames as they are drawn now, in pixels: what an exported picture has.
  picture(): { one: Frame; x: number; y: number; width: number }[] {
    const width = this.width;
    const drawn = this.drawn().filter((each) => (each.x1 - each.x0) * width > FRAME_WIDTH_MIN);
    const deepest = Math.max(0, ...drawn.map((each) => each.depth));
    return drawn.map((each) => ({
      one: each.data,
      x: each.x0 * width,
      y: (this.isInverted ? each.depth : deepest - each.depth) * ROW_HEIGHT,
      width: (each.x1 - each.x0) * width,
    }));
  }

  get pixels(): number {
    return this.width;
  }

  private drawn(): DrawnFrame<Frame>[] {
    if (!this.chart) return [];
    return (select(this.host).datum() as unknown as DrawnFrame<Frame>).descendants();
  }

  private fit(): void {
    if (!this.chart || !this.root || !this.host.clientWidth || this.host.clientWidth === this.width) return;
    this.width = this.host.clientWidth;
    this.chart.width(this.width).update();
    this.dress();
  }

  // Roles, names and one place in the tab order, after each time the library has drawn.
  private dress(): void {
    this.elements.clear();
    const svg = this.host.querySelector("svg");
    if (!svg || !this.root) return;
    svg.setAttribute("role", "tree");
    svg.setAttribute("aria-label", this.label);
    svg.querySelectorAll<SVGGElement>("g.frame").forEach((element) => {
      const drawn = select(element).datum() as DrawnFrame<Frame>;
      const one = drawn.data;
      this.elements.set(one, element);
      element.setAttribute("name", one.name);
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", String(drawn.depth + 1));
      element.setAttribute("aria-label", describe(one, this.look));
      element.setAttribute("tabindex", "-1");
      element.classList.toggle("fg-above", one.isAbove);
      element.classList.toggle("fg-match", this.look.isSearching && one.isMatch);
      element.classList.toggle("fg-faint", this.look.isSearching && !one.isMatch);
      element.querySelector("title")?.remove(); // the tip says more, and at once
    });
    const known = this.current && this.elements.get(this.current);
    (known ?? this.elements.get(this.root))?.setAttribute("tabindex", "0");
  }

  private frameOf(target: EventTarget | null): Frame | null {
    const element = (target as Element | null)?.closest?.("g.frame");
    return element ? (select(element).datum() as DrawnFrame<Frame>).data : null;
  }

  private setCurrent(one: Frame): void {
    this.elements.get(this.current ?? this.root!)?.setAttribute("tabindex", "-1");
    this.current = one;
    this.elements.get(one)?.setAttribute("tabindex", "0");
    this.wishes.current(one);
  }

  private clicked(event: MouseEvent): void {
    const one = this.frameOf(event.target);
    if (!one) return;
    event.stopPropagation();
    this.tip.hidden = true;
    this.setCurrent(one);
    if (event.altKey) this.wishes.sandwich(one);
    else this.wishes.zoom(one);
  }

  private pressed(event: KeyboardEvent): void {
    const one = this.frameOf(event.target);
    if (!one || event.ctrlKey || event.metaKey || event.altKey) return;
    const down = this.isInverted ? "ArrowDown" : "ArrowUp";
    const up = this.isInverted ? "ArrowUp" : "ArrowDown";
    const moves: Record<string, () => Frame | null | undefined> = {
      [down]: () => this.widest(one.children),
      [up]: () => one.parent,
      ArrowRight: () => this.beside(one, 1),
      ArrowLeft: () => this.beside(one, -1),
      Home: () => this.root,
    };
    const acts: Record<string, () => void> = {
      Enter: () => this.wishes.zoom(one),
      " ": () => this.wishes.zoom(one),
      Backspace: () => this.wishes.zoomOut(),
      Escape: () => this.wishes.zoomOut(),
      s: () => this.wishes.sandwich(one),
    };
    if (event.key in moves) {
      const next = moves[event.key]();
      if (next && this.elements.has(next)) this.focus(next);
    } else if (event.key in acts) acts[event.key]();
    else return;
    event.preventDefault();
  }

  private widest(frames: Frame[]): Frame | null {
    const shown = frames.filter((one) => this.elements.has(one) && !one.hide);
    return shown.reduce<Frame | null>((best, one) => (best && best.value >= one.value ? best : one), null);
  }

  // The next frame in the same row, of any caller.
  private beside(one: Frame, step: number): Frame | null {
    const depth = Number(this.elements.get(one)?.getAttribute("aria-level"));
    const row = this.drawn()
      .filter((each) => each.depth === depth - 1 && this.elements.has(each.data) && each.x1 > each.x0)
      .sort((left, right) => left.x0 - right.x0)
      .map((each) => each.data);
    return row[row.indexOf(one) + step] ?? null;
  }

  private pointed(event: MouseEvent): void {
    const one = this.frameOf(event.target);
    this.tip.hidden = !one;
    if (!one) return;
    const [name, ...lines] = sentences(one, this.look);
    const title = document.createElement("strong");
    title.textContent = name;
    this.tip.replaceChildren(
      title,
      ...lines.map((line) => {
        const row = document.createElement("span");
        row.textContent = line;
        return row;
      }),
    );
    const space = document.documentElement.clientWidth - this.tip.offsetWidth - 12;
    this.tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, space))}px`;
    const below = event.clientY + 18 + this.tip.offsetHeight < document.documentElement.clientHeight;
    this.tip.style.top = `${below ? event.clientY + 18 : event.clientY - 12 - this.tip.offsetHeight}px`;
  }
}

// The name of a frame, and what it has, a line each.
export function sentences(one: Frame, look: Look): string[] {
  const name = one.isCut ? "other: smaller frames, not drawn" : one.name;
  const lines: string[] = [];
  if (one.totals.length === 1) {
    lines.push(`total ${valueText(one.totals[0], look.unit)}, ${shareText(one.totals[0], look.wholeTotals[0])}`);
    if (!one.isCut && !one.isAbove) {
      lines.push(`self ${valueText(one.own[0], look.unit)}, ${shareText(one.own[0], look.wholeTotals[0])}`);
    }
  } else {
    ["left", "right"].forEach((side, place) => {
      const share = shareText(one.totals[place], look.wholeTotals[place]);
      lines.push(`${side} ${valueText(one.totals[place], look.unit)}, ${share}`);
    });
    lines.push(changeText(one, look.wholeTotals));
  }
  if (one.isCut) lines.push("Zoom into what is above to see them");
  return [name, ...lines];
}

export function changeText(one: { totals: number[] }, wholeTotals: number[]): string {
  const [left, right] = one.totals.map((total, side) => (wholeTotals[side] ? (100 * total) / wholeTotals[side] : 0));
  if (!left && right) return "only right";
  if (left && !right) return "only left";
  const gained = change(one, wholeTotals);
  const word = Math.abs(gained) < 0.005 ? "the same share" : gained > 0 ? "more" : "less";
  return `${pointsText(right - left)} points, ${word}`;
}

export function describe(one: Frame, look: Look): string {
  return sentences(one, look).join(", ");
}
