// The flame graph page: what the address says is asked, drawn, and changed by what people do.

import "./flame-graph.css";
import { FlameChart, describe, type Look, type Wishes } from "./chart";
import { showCost } from "./cost";
import { byId, fill, make } from "./dom";
import { framesOf, pathOf, placeId, type Frame } from "./frames";
import { Panel } from "./panel";
import { Picker } from "./picker";
import { differenceColour } from "./palette";
import { download, svgPicture } from "./picture";
import {
  ask,
  askFile,
  exportAddress,
  Refused,
  setup,
  type GraphAnswer,
  type Report,
  type SandwichAnswer,
  type Service,
  type TimelineAnswer,
} from "./server";
import { Side, type Range } from "./side";
import { SKELETON } from "./skeleton";
import { question, readState, writeState, type Colours, type Compare, type State, type View } from "./state";
import { counted, rangeText, shareText, typeText, valueText, zoneName } from "./words";

type Place = "left" | "right";

const SEARCH_PAUSE_MS = 250;
const FIRST_CHOICE = /^process_cpu:cpu:/;
const host = byId("flame-graph");
host.innerHTML = SKELETON;

let state = readState(location.search);
let services: Service[] = [];
let file: { file: File; sample: number } | null = null;
const asked = new Map<string, { key: string; stop: AbortController }>();
const reports = new Map<string, Report>();
const found = new Map<Place, GraphAnswer>();
const tip = byId("fg-tip");

const wishes: Wishes & { function(name: string): void } = {
  zoom: (one) => zoom(one),
  zoomOut: () => zoomOut(),
  sandwich: (one) => showFunction(one.isCut || !one.parent ? "" : one.name),
  function: showFunction,
  current: showCurrent,
};
const panels: Record<Place, Panel> = {
  left: new Panel(byId("fg-panel-left"), "Flame graph", wishes, tip),
  right: new Panel(byId("fg-panel-right"), "Flame graph, right side", wishes, tip),
};
const callers = new FlameChart(byId("fg-callers"), "Callers", false, inSandwich(), tip);
const callees = new FlameChart(byId("fg-callees"), "What it calls", true, inSandwich(), tip);
const sides: Record<Place, Side> = { left: makeSide("left"), right: makeSide("right") };
const tenantPicker = new Picker(byId<HTMLSelectElement>("fg-tenant"), {
  placeholder: "choose a tenant",
  chosen: (tenant) => go({ tenant, service: "", type: "", from: "", until: "", filters: [], rightFilters: [], focus: "", fn: "" }),
});
const servicePicker = new Picker(byId<HTMLSelectElement>("fg-service"), {
  placeholder: "all services",
  chosen: (service) => go({ service, type: typeOf(service), focus: "", fn: "" }),
});
const typePicker = new Picker(byId<HTMLSelectElement>("fg-type"), {
  placeholder: "choose a profile type",
  chosen: (type) => go({ type, focus: "", fn: "" }),
});

// --- what the address says ---------------------------------------------------------------------------------------

function go(part: Partial<State>, isReplacing = false): void {
  state = { ...state, ...part };
  const address = `${location.pathname}?${writeState(state)}`;
  if (isReplacing || address === location.pathname + location.search) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  void show();
}

addEventListener("popstate", () => {
  state = readState(location.search);
  void show();
});

function makeSide(place: Place): Side {
  const isLeft = place === "left";
  return new Side(byId(`fg-asked-${place}`), isLeft ? "Left" : "Right", {
    range: ({ from, until }) => go(isLeft ? { from, until } : { rightFrom: from, rightUntil: until }),
    everything,
    filters: (filters) => go(isLeft ? { filters } : { rightFilters: filters }),
    suggestions: async (label, without) => {
      const query = question(state, place);
      const name = isLeft ? "filter" : "right_filter";
      const others = query.getAll(name).filter((filter) => filter !== without);
      query.delete(name);
      for (const filter of others) query.append(name, filter);
      if (label) query.set("name", label);
      const { values } = await ask<{ values: string[] }>("labels", query);
      // What senders write for themselves comes last.
      return label ? values : values.sort((left, right) => Number(left.startsWith("__")) - Number(right.startsWith("__")));
    },
    zone: (zone) => go({ zone }),
    again: () => {
      asked.clear();
      for (const panel of Object.values(panels)) panel.forget();
      void show();
    },
  });
}

function everything(): Range | null {
  const known = services.filter((service) => !state.service || service.name === state.service);
  if (!known.length) return null;
  const from = Math.min(...known.map((service) => service.oldest_ms));
  const until = Math.max(...known.map((service) => service.newest_ms));
  return { from: String(Math.max(from, 1_000)), until: String(Math.max(until, 1_000)) };
}

function typeOf(name: string): string {
  const types = typesOf(name);
  return types.includes(state.type) ? state.type : (types.find((type) => FIRST_CHOICE.test(type)) ?? types[0] ?? "");
}

function typesOf(name: string): string[] {
  const known = services.filter((service) => !name || service.name === name);
  return [...new Set(known.flatMap((service) => service.types))].sort();
}

// Chooses what the address leaves open: the service with the newest data, CPU time, and a range that has data.
function settle(): void {
  const part: Partial<State> = {};
  const newest = [...services].sort((left, right) => right.newest_ms - left.newest_ms)[0];
  if (!state.service && !state.type && newest) part.service = newest.name;
  const name = part.service ?? state.service;
  if (!state.type) part.type = typeOf(name);
  if (!state.from || !state.until) {
    const known = services.find((service) => service.name === name) ?? newest;
    const isFresh = !known || Date.now() - known.newest_ms < 3.6e6;
    const all = known && { from: String(Math.max(known.oldest_ms, known.newest_ms - 8.64e7, 1_000)), until: String(known.newest_ms) };
    Object.assign(part, isFresh ? { from: "now-1h", until: "now" } : all);
  }
  if (Object.keys(part).length) {
    state = { ...state, ...part };
    history.replaceState(null, "", `${location.pathname}?${writeState(state)}`);
  }
}

// --- asking ------------------------------------------------------------------------------------------------------

// Asks once per key; what is not wanted any more is stopped, and its answer forgotten.
async function load<T>(slot: string, key: string, fetched: (signal: AbortSignal) => Promise<T>, take: (answer: T) => void): Promise<void> {
  const before = asked.get(slot);
  if (before?.key === key) return;
  before?.stop.abort();
  const mine = { key, stop: new AbortController() };
  asked.set(slot, mine);
  busy(1);
  try {
    const answer = await fetched(mine.stop.signal);
    if (asked.get(slot) === mine) {
      if (slot !== "known") fill(byId("fg-message"));
      take(answer);
    }
  } catch (error) {
    if (asked.get(slot) !== mine || (error as Error).name === "AbortError") return;
    asked.delete(slot);
    if (slot === "left" || slot === "right") {
      panels[slot].forget();
      fill(byId("fg-cost"));
    }
    complain(error as Error);
  } finally {
    busy(-1);
  }
}

let underWay = 0;

function busy(more: number): void {
  underWay += more;
  host.classList.toggle("fg-busy", underWay > 0);
  host.setAttribute("aria-busy", String(underWay > 0));
}

function complain(error: Error): void {
  const refused = error instanceof Refused ? error : new Refused("unknown", `The page failed: ${error.message}`, "Load it again.");
  const next = encodeURIComponent(location.pathname + location.search);
  fill(
    byId("fg-message"),
    make(
      "div",
      { className: "lt-notice lt-notice-bad" },
      make("span", {}, `${capital(refused.message)}${/[.!?]$/.test(refused.message) ? "" : "."} ${refused.next}`),
      refused.code === "signed_out"
        ? make("a", { className: "lt-link", href: `${setup.sign_in}?next=${next}` }, "Sign in")
        : make("button", { type: "button", className: "lt-button", onclick: () => void show() }, "Ask again"),
    ),
  );
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

async function askGraph(place: Place, extra: Record<string, string>, signal: AbortSignal): Promise<GraphAnswer> {
  const query = graphQuestion(place);
  for (const [name, value] of Object.entries(extra)) if (value) query.set(name, value);
  if (!file) return ask<GraphAnswer>("graph", query, signal);
  query.set("show", "graph");
  return (await askFile(file.file, query, signal)).json();
}

function graphQuestion(place: Place): URLSearchParams {
  if (file) return new URLSearchParams(file.sample < 0 ? {} : { sample: String(file.sample) });
  return question(state, state.compare === "diff" ? "both" : place);
}

// --- showing -----------------------------------------------------------------------------------------------------

async function show(): Promise<void> {
  if (!state.tenant && setup.tenants.length) state.tenant = setup.tenants[0];
  showControls();
  await load("known", state.tenant, (signal) => ask<{ services: Service[] }>("known", new URLSearchParams({ tenant: state.tenant }), signal), (answer) => {
    services = answer.services;
  });
  if (!asked.has("known")) return;
  settle();
  showControls();
  if (file) {
    showGraph("left");
    return;
  }
  if (!state.type) {
    showNothing();
    return;
  }
  const places: Place[] = state.compare ? ["left", "right"] : ["left"];
  for (const place of places) loadTimeline(place);
  showGraph("left");
  if (state.compare === "side") showGraph("right");
}

function showControls(): void {
  tenantPicker.set(setup.tenants.map((tenant) => ({ value: tenant, text: tenant })), state.tenant);
  servicePicker.set(
    services.map((service) => ({
      value: service.name,
      text: service.name,
      more: `until ${rangeText(service.newest_ms, service.newest_ms, state.zone).slice(0, 19)}`,
    })),
    state.service,
  );
  const types = typesOf(state.service);
  const chosen = state.type && !types.includes(state.type) ? [state.type] : [];
  typePicker.set([...types, ...chosen].map((type) => ({ value: type, text: typeText(type), more: type })), state.type);
  const isCompared = state.compare !== "" && !file;
  byId("fg-asked-right").hidden = !isCompared;
  byId("fg-asked-left").parentElement!.classList.toggle("fg-two", isCompared);
  byId("fg-stored").hidden = byId("fg-asked-left").hidden = Boolean(file);
  if (file) byId("fg-asked-right").hidden = true;
  sides.left.show({ from: state.from, until: state.until }, state.filters, state.zone, isCompared);
  sides.right.show({ from: state.rightFrom || state.from, until: state.rightUntil || state.until }, state.rightFilters, state.zone, isCompared);
  check("fg-compare", state.compare);
  check("fg-view", state.view);
  byId<HTMLSelectElement>("fg-colours").value = state.colours;
  const box = byId<HTMLInputElement>("fg-search");
  if (document.activeElement !== box) box.value = state.search;
  byId("fg-panels").dataset.view = state.view;
  byId("fg-panels").dataset.compare = file ? "" : state.compare;
}

function check(name: string, value: string): void {
  document.querySelectorAll<HTMLInputElement>(`input[name=${name}]`).forEach((one) => (one.checked = one.value === value));
}

function loadTimeline(place: Place): void {
  const query = question(state, place);
  const own = sides[place].moments();
  let range: [number, number] | null = null;
  if (state.compare) {
    // Both sides over one stretch of time, so that each can be moved along it.
    const other = sides[place === "left" ? "right" : "left"].moments();
    const prefix = place === "left" ? "" : "right_";
    query.set(`${prefix}from`, String(Math.max(1_000, Math.min(own[0], other[0]))));
    query.set(`${prefix}until`, String(Math.max(own[1], other[1])));
    range = own;
  }
  const slot = `timeline ${place}`;
  const key = `${query} ${state.zone} ${range}`;
  void load(slot, key, (signal) => ask<TimelineAnswer>("timeline", query, signal), (answer) => {
    if (answer.bars.some((bar) => bar[1])) sides[place].showTimeline(answer, unit(), range);
    else sides[place].clearTimeline("");
  });
}

function showGraph(place: Place): void {
  const panel = panels[place];
  const base = file ? `file ${file.file.name} ${file.file.size} ${file.file.lastModified} ${file.sample}` : graphQuestion(place).toString();
  if (panel.host.dataset.asked !== base) {
    panel.host.dataset.asked = base;
    panel.forget();
    found.delete(place);
    reports.delete(place);
    showCurrent(null);
    asked.delete(place);
    asked.delete(`search ${place}`);
    asked.delete("sandwich");
  }
  panels.right.host.hidden = state.compare !== "side" || Boolean(file);
  if (state.fn) loadSandwich();
  byId("fg-sandwich").hidden = !state.fn;
  byId("fg-panels").hidden = Boolean(state.fn);
  const focus = state.focus;
  if (panel.has(focus)) {
    draw(place);
    loadSearch(place);
    return;
  }
  void load(place, `${base} ${focus}`, (signal) => askGraph(place, { focus }, signal), (answer) => {
    panel.take(answer, focus);
    if (answer.report) reports.set(place, answer.report);
    if (answer.focus_lost) {
      lostFocus();
      return;
    }
    draw(place);
    loadSearch(place);
  });
}

function lostFocus(): void {
  go({ focus: "" }, true);
  const said = "What the link zooms into is not in this range; all of it is shown.";
  fill(byId("fg-message"), make("div", { className: "lt-notice lt-notice-warn" }, make("span", {}, said)));
}

function draw(place: Place): void {
  const panel = panels[place];
  const answer = panel.part ?? panel.whole;
  if (!answer) return;
  const isEmpty = answer.totals.every((total) => !total);
  const isAlone = state.compare !== "side" || Boolean(file);
  showEmpty(isAlone && isEmpty);
  panel.host.hidden = false;
  const title = isAlone ? "" : `${place === "left" ? "Left" : "Right"}: ${sideTitle(place)}, ${valueText(answer.totals[0], unit())}${isEmpty ? ", no profiles here" : ""}`;
  panel.show(look(panel), state.focus, state.search, state.search ? (found.get(place) ?? null) : null, title);
  showCrumbs();
  showLegend();
  showFound();
  showReports();
  showExports();
  if (file) showFileBar(answer);
}

function sideTitle(place: Place): string {
  return rangeText(...sides[place].moments(), state.zone);
}

function unit(): string {
  const answer = panels.left.whole ?? panels.left.part;
  if (file) return answer?.sample_types?.[answer.sample ?? 0]?.unit ?? "";
  return state.type.split(":")[2] ?? "";
}

function look(panel: Panel): Look {
  const answer = panel.part ?? panel.whole;
  return { colours: state.colours, unit: unit(), wholeTotals: answer?.totals ?? [0], isSearching: state.search !== "" };
}

// What was cut is searched by the server; what is all here, here.
function loadSearch(place: Place): void {
  const panel = panels[place];
  const text = state.search;
  if (!text || panel.isComplete) {
    found.delete(place);
    return;
  }
  void load(`search ${place}`, `${panel.host.dataset.asked} ${text}`, (signal) => askGraph(place, { search: text }, signal), (answer) => {
    found.set(place, answer);
    panel.whole ??= answer;
    draw(place);
  });
}

function showFound(): void {
  const output = byId("fg-found");
  const text = state.search;
  const places: Place[] = state.compare === "side" && !file ? ["left", "right"] : ["left"];
  const said = places.flatMap((place) => {
    const panel = panels[place];
    if (!text || !(panel.whole ?? panel.part)) return [];
    const known = panel.isComplete ? panel.count(text) : found.get(place)?.search?.text === text ? found.get(place)!.search! : null;
    if (!known) return ["counting …"];
    const totals = (panel.whole ?? panel.part)!.totals;
    const shares = known.totals.map((total, side) => shareText(total, totals[side]));
    return [`${counted(known.functions, "function")}, ${shares.join(" left, ")}${shares.length > 1 ? " right" : " of the total"}`];
  });
  output.textContent = said.join(" · ");
}

function showReports(): void {
  const places = state.compare === "side" ? ["left", "right"] : ["left"];
  const main = places.flatMap((place) => reports.get(place) ?? []);
  if (file || main.length < places.length) {
    fill(byId("fg-cost"), file ? make("p", { className: "lt-empty" }, "A file from your disk: nothing was read from the store.") : null);
    return;
  }
  const sum = main.reduce((left, right) => ({
    objects_opened: left.objects_opened + right.objects_opened,
    datasets_read: left.datasets_read + right.datasets_read,
    requests: left.requests + right.requests,
    bytes_read: left.bytes_read + right.bytes_read,
    rows_read: left.rows_read + right.rows_read,
    ms: left.ms + right.ms,
    phases_ms: Object.fromEntries(Object.keys(left.phases_ms).map((name) => [name, left.phases_ms[name] + right.phases_ms[name]])),
    damage: [...left.damage, ...right.damage],
  }));
  const key = `${panels.left.host.dataset.asked} ${state.compare === "side" ? panels.right.host.dataset.asked : ""}`;
  showCost(byId("fg-cost"), sum, key);
}

function showCrumbs(): void {
  const panel = panels.left;
  const one = panel.focused(state.focus);
  const answer = panel.part ?? panel.whole;
  if (!one || !answer) {
    fill(byId("fg-crumbs"));
    return;
  }
  const path = pathOf(one);
  const steps = [null, ...path].map((step, place) => {
    const isLast = place === path.length;
    const name = step ? step.name : "total";
    const share = step ? ` ${shareText(step.totals[0], answer.totals[0])}` : "";
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", title: name, "aria-current": isLast ? "location" : null, onclick: () => go({ focus: step ? placeId(step) : "" }) },
        make("span", { className: "fg-crumb-name" }, name),
        make("span", { className: "fg-crumb-share" }, share),
      ),
    );
  });
  fill(byId("fg-crumbs"), make("ol", {}, ...steps));
}

function showLegend(): void {
  const legend = byId("fg-legend");
  legend.hidden = state.compare !== "diff" || Boolean(file);
  if (legend.hidden) return;
  const marks = [-1, -0.6, -0.25, 0, 0.25, 0.6, 1].map((gained) => make("span", { style: `background: ${differenceColour(gained, state.colours)}` }));
  const totals = (panels.left.part ?? panels.left.whole)?.totals ?? [0, 0];
  fill(
    legend,
    make("span", {}, `Left ${sideTitle("left")}: ${valueText(totals[0], unit())}`),
    make("span", { className: "fg-scale" }, "smaller share on the right ", ...marks, " larger"),
    make("span", {}, `Right ${sideTitle("right")}: ${valueText(totals[1], unit())}`),
  );
}

// What an empty answer can be helped with: where there is data.
function showEmpty(isEmpty: boolean): void {
  const box = byId("fg-empty");
  box.hidden = !isEmpty;
  byId("fg-panels").classList.toggle("fg-none", isEmpty);
  if (!isEmpty) return;
  if (file) {
    fill(box, make("p", { className: "lt-nothing" }, "This file has no samples of this type."));
    return;
  }
  const known = services.find((service) => service.name === state.service);
  const all = everything();
  fill(
    box,
    make(
      "div",
      { className: "lt-nothing" },
      make("p", {}, make("strong", {}, "No profiles here.")),
      known
        ? make("p", {}, `${known.name} has data ${rangeText(known.oldest_ms, known.newest_ms, state.zone)} ${zoneName(state.zone)}${known.types.includes(state.type) ? "" : ", but never of this type"}.`)
        : make("p", {}, state.service ? `${state.service} has no data that is kept.` : "Choose another time."),
      state.filters.length ? make("p", {}, "The filters may leave nothing: take one away.") : null,
      make(
        "p",
        { className: "lt-buttons fg-centre" },
        all && known ? make("button", { type: "button", className: "lt-button lt-button-strong", onclick: () => go({ ...all, focus: "" }) }, "Show all there is") : null,
        ...services
          .filter((service) => service.name !== state.service)
          .slice(0, 6)
          .map((service) =>
            make("button", { type: "button", className: "lt-button", onclick: () => go({ service: service.name, type: typeOf(service.name), from: String(Math.max(1_000, service.oldest_ms)), until: String(service.newest_ms), focus: "", fn: "" }) }, service.name),
          ),
      ),
    ),
  );
}

function showNothing(): void {
  sides.left.clearTimeline("");
  byId("fg-panels").classList.add("fg-none");
  const box = byId("fg-empty");
  box.hidden = false;
  const said = services.length ? "Choose a profile type." : `Tenant ${state.tenant} has no profiles yet. Send some, and they appear here within seconds.`;
  fill(box, make("p", { className: "lt-nothing" }, said));
}

function showCurrent(one: Frame | null): void {
  const box = byId("fg-current");
  if (!one) {
    fill(box);
    return;
  }
  const current = state.fn ? callersLook : look(panels.left);
  fill(
    box,
    make("span", { className: "fg-current-text" }, describe(one, current)),
    one.parent && !one.isCut
      ? make(
          "span",
          { className: "fg-current-acts" },
          make("button", { type: "button", className: "lt-button", onclick: () => showFunction(one.name) }, "Callers and callees"),
          make("button", { type: "button", className: "lt-button", onclick: () => go({ search: one.name }) }, "Search this"),
          make("button", { type: "button", className: "lt-button", onclick: () => void navigator.clipboard?.writeText(one.name) }, "Copy name"),
        )
      : null,
  );
}

// --- zoom, sandwich ----------------------------------------------------------------------------------------------

function zoom(one: Frame): void {
  go({ focus: placeId(one.isCut ? one.parent! : one) });
}

function zoomOut(): void {
  const one = panels.left.focused(state.focus) ?? panels.right.focused(state.focus);
  if (one) go({ focus: one.parent ? placeId(one.parent) : "" });
}

function showFunction(name: string): void {
  if (name) go({ fn: name });
}

let callersLook: Look = { colours: "warm", unit: "", wholeTotals: [0], isSearching: false };

function inSandwich(): Wishes {
  const other = (one: Frame) => {
    if (one.parent && !one.isCut && one.name !== state.fn) go({ fn: one.name });
  };
  return { zoom: other, sandwich: other, zoomOut: () => go({ fn: "" }), current: (one) => showCurrent(one) };
}

function loadSandwich(): void {
  const name = state.fn;
  const query = file ? graphQuestion("left") : question(state, state.compare ? "both" : "left");
  query.set("function", name);
  const key = `${panels.left.host.dataset.asked} ${query}`;
  const fetched = async (signal: AbortSignal): Promise<SandwichAnswer> => {
    if (!file) return ask<SandwichAnswer>("sandwich", query, signal);
    query.set("show", "sandwich");
    return (await askFile(file.file, query, signal)).json();
  };
  const before = asked.get("sandwich")?.key;
  if (before === key) {
    callersLook = { ...callersLook, colours: state.colours };
    callers.recolour(callersLook);
    callees.recolour(callersLook);
    return;
  }
  void load("sandwich", key, fetched, (answer) => {
    callersLook = { colours: state.colours, unit: unit(), wholeTotals: answer.totals, isSearching: false };
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
    callers.draw(trees[0], callersLook);
    callees.draw(trees[1], callersLook);
    callees.focus();
  });
}

// --- exports and files -------------------------------------------------------------------------------------------

function showExports(): void {
  const list = byId("fg-export-list");
  const links: HTMLElement[] = [];
  const places: Place[] = state.compare === "side" && !file ? ["left", "right"] : ["left"];
  const isDifference = state.compare === "diff" && !file;
  for (const place of places) {
    const said = places.length > 1 ? `, ${place}` : "";
    if (file) {
      links.push(exportButton("Folded stacks", () => void exportFile("folded")), exportButton("JSON (levels)", () => void exportFile("levels")));
    } else {
      const query = isDifference ? question(state, "both") : sideQuestion(place);
      if (!isDifference) {
        links.push(exportLink(`pprof file${said}`, exportAddress(query, "pprof")), exportLink(`Folded stacks${said}`, exportAddress(query, "folded")));
      }
      links.push(exportLink(`JSON (levels)${said}`, exportAddress(query, "levels")));
    }
    links.push(exportButton(`Picture (SVG) of what is drawn${said}`, () => exportPicture(place)));
  }
  fill(list, ...links);
}

// The right side as a question of its own, which every program understands.
function sideQuestion(place: Place): URLSearchParams {
  if (place === "left") return question(state, "left");
  return question({ ...state, from: state.rightFrom || state.from, until: state.rightUntil || state.until, filters: state.rightFilters }, "left");
}

function exportLink(text: string, href: string): HTMLElement {
  return make("a", { href, download: "" }, text);
}

function exportButton(text: string, onclick: () => void): HTMLElement {
  return make("button", { type: "button", onclick }, text);
}

function exportPicture(place: Place): void {
  const panel = panels[place];
  const chart = state.fn ? callees : panel.chart;
  const name = file ? file.file.name : `${state.service || state.tenant} ${typeText(state.type)}`;
  const when = file ? "" : ` ${sideTitle(place)} ${zoneName(state.zone)}`;
  const totals = state.fn ? callersLook.wholeTotals : look(panel).wholeTotals;
  download(svgPicture(chart, `${name}${when}`, state.colours, totals), `${name.replace(/[^\w.-]+/g, "-")}.svg`, "image/svg+xml");
}

async function exportFile(form: string): Promise<void> {
  try {
    const query = graphQuestion("left");
    query.set("show", form);
    const response = await askFile(file!.file, query);
    download(await response.arrayBuffer(), `${file!.file.name}.${form === "folded" ? "folded" : "json"}`, "application/octet-stream");
  } catch (error) {
    complain(error as Error);
  }
}

function showFileBar(answer: GraphAnswer): void {
  const bar = byId("fg-file-bar");
  bar.hidden = false;
  const types = make(
    "select",
    { className: "lt-input", "aria-label": "Sample type", onchange: (event: Event) => openFile(file!.file, Number((event.target as HTMLSelectElement).value)) },
    ...(answer.sample_types ?? []).map((one, place) => make("option", { value: String(place), selected: place === answer.sample }, `${one.type} (${one.unit})`)),
  );
  fill(
    bar,
    make("span", {}, make("strong", {}, file!.file.name), " is open. It stays on your disk: the server drew it and kept nothing, and a link to this page does not show it."),
    types,
    make("button", { type: "button", className: "lt-button", onclick: closeFile }, "Close the file"),
  );
}

function openFile(opened: File, sample = -1): void {
  file = { file: opened, sample };
  go({ focus: "", fn: "", compare: "" });
}

function closeFile(): void {
  file = null;
  byId("fg-file-bar").hidden = true;
  byId<HTMLInputElement>("fg-file").value = "";
  go({ focus: "", fn: "" });
}

// --- what people do ----------------------------------------------------------------------------------------------

let pause: ReturnType<typeof setTimeout> | undefined;
byId<HTMLInputElement>("fg-search").addEventListener("input", (event) => {
  const text = (event.target as HTMLInputElement).value.trim();
  clearTimeout(pause);
  pause = setTimeout(() => go({ search: text }, true), SEARCH_PAUSE_MS);
});
byId("fg-search").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  clearTimeout(pause);
  byId<HTMLInputElement>("fg-search").value = "";
  go({ search: "" }, true);
});
document.querySelectorAll<HTMLInputElement>("input[name=fg-view]").forEach((one) => {
  one.onchange = () => go({ view: one.value as View, fn: "" });
});
document.querySelectorAll<HTMLInputElement>("input[name=fg-compare]").forEach((one) => {
  one.onchange = () => compare(one.value as Compare);
});
byId<HTMLSelectElement>("fg-colours").onchange = (event) => go({ colours: (event.target as HTMLSelectElement).value as Colours });
// On the way down: the admin's own script expects a text field beside every file field, and fails without.
byId("fg-file").parentElement!.addEventListener(
  "change",
  (event) => {
    event.stopPropagation();
    const opened = (event.target as HTMLInputElement).files?.[0];
    if (opened) openFile(opened);
  },
  true,
);

// The first half of the range against the second, until somebody says otherwise: both have data, mostly.
function compare(wanted: Compare): void {
  if (!wanted || state.rightFrom) {
    go({ compare: wanted, focus: wanted ? state.focus : "" });
    return;
  }
  const [start, end] = sides.left.moments();
  const middle = Math.floor((start + end) / 2);
  go({
    compare: wanted,
    from: String(start),
    until: String(middle),
    rightFrom: String(middle + 1),
    rightUntil: String(end),
    rightFilters: state.rightFilters.length ? state.rightFilters : state.filters,
  });
}

addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input:not([type=radio]), select, textarea, [contenteditable], .ts-wrapper")) return;
  if (event.key === "/") byId("fg-search").focus();
  else if (event.key === "g") (state.fn ? callees : panels.left.chart).focus();
  else if (event.key === "?") {
    const help = byId<HTMLDetailsElement>("fg-help");
    help.open = !help.open;
    help.querySelector("summary")!.focus();
  } else if (event.key === "Escape" && document.querySelector("details.fg-menu[open]")) closeMenus();
  else if (event.key === "Escape" && state.fn) go({ fn: "" });
  else return;
  event.preventDefault();
});
addEventListener("click", (event) => {
  document.querySelectorAll<HTMLDetailsElement>("details.fg-menu[open]").forEach((menu) => {
    if (!menu.contains(event.target as Node)) menu.open = false;
  });
});
byId("fg-export-list").addEventListener("click", () => closeMenus());

function closeMenus(): void {
  document.querySelectorAll<HTMLDetailsElement>("details.fg-menu[open]").forEach((menu) => {
    menu.open = false;
    menu.querySelector("summary")?.focus();
  });
}

void show();
