// What this page uses of a library that comes without types.
declare module "d3-flame-graph" {
  import type { Selection } from "d3-selection";

  export interface DrawnFrame<T> {
    data: T;
    x0: number;
    x1: number;
    depth: number;
    descendants(): DrawnFrame<T>[];
  }

  export interface Chart<T> {
    (selection: Selection<HTMLElement, T, null, undefined>): void;
    width(pixels: number): this;
    cellHeight(pixels: number): this;
    minFrameSize(pixels: number): this;
    transitionDuration(ms: number): this;
    inverted(isInverted: boolean): this;
    sort(isSorted: boolean): this;
    tooltip(isShown: boolean): this;
    resetHeightOnZoom(isReset: boolean): this;
    getName(name: (one: DrawnFrame<T>) => string): this;
    setColorMapper(colour: (one: DrawnFrame<T>) => string): this;
    setLabelHandler(label: (one: DrawnFrame<T>) => string): this;
    zoomTo(one: DrawnFrame<T>): void;
    update(): void;
    destroy(): void;
  }

  export function flamegraph<T>(): Chart<T>;
  export default flamegraph;
}
