// The fixed parts of the page. Nothing that comes from data stands here.

export const SKELETON = `
<svg class="fg-definitions" width="0" height="0" aria-hidden="true"><defs>
  <pattern id="fg-cut" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
    <rect width="6" height="6" fill="#dedad4"></rect><rect width="2" height="6" fill="#c2bdb5"></rect>
  </pattern>
</defs></svg>
<div id="fg-message" role="alert"></div>
<section class="lt-section fg-controls" aria-label="What to look at">
  <div class="fg-row" id="fg-stored">
    <label class="fg-pick">Tenant<select id="fg-tenant"></select></label>
    <label class="fg-pick fg-pick-wide">Service<select id="fg-service"></select></label>
    <label class="fg-pick fg-pick-wide">Profile type<select id="fg-type"></select></label>
    <fieldset class="fg-segments"><legend>Compare</legend>
      <label><input type="radio" name="fg-compare" value=""><span>Off</span></label>
      <label><input type="radio" name="fg-compare" value="side"><span>Side by side</span></label>
      <label><input type="radio" name="fg-compare" value="diff"><span>Difference</span></label>
    </fieldset>
  </div>
  <div class="fg-sides-asked">
    <div class="fg-side-asked" id="fg-asked-left"></div>
    <div class="fg-side-asked" id="fg-asked-right" hidden></div>
  </div>
  <div class="fg-file-bar" id="fg-file-bar" hidden></div>
</section>
<section class="lt-section fg-cost-section" aria-label="What the answer cost">
  <div id="fg-cost"></div>
</section>
<section class="lt-section fg-main" aria-label="Flame graph">
  <div class="fg-tools">
    <label class="fg-search"><span class="fg-hidden">Search functions</span>
      <input id="fg-search" class="lt-input" type="search" placeholder="Search functions  ( / )" autocomplete="off" spellcheck="false" maxlength="300"></label>
    <output id="fg-found" class="fg-found" for="fg-search"></output>
    <fieldset class="fg-segments"><legend class="fg-hidden">View</legend>
      <label><input type="radio" name="fg-view" value="both"><span>Both</span></label>
      <label><input type="radio" name="fg-view" value="flame"><span>Flame graph</span></label>
      <label><input type="radio" name="fg-view" value="table"><span>Table</span></label>
    </fieldset>
    <label class="fg-inline">Colours
      <select id="fg-colours" class="lt-input">
        <option value="warm">warm; blue – orange</option>
        <option value="distinct">for colour-blind eyes</option>
        <option value="redgreen">warm; green – red</option>
      </select></label>
    <details class="fg-menu" id="fg-export"><summary class="lt-button">Export</summary><div class="fg-menu-list" id="fg-export-list"></div></details>
    <label class="lt-button fg-open" title="The file is shown and not stored">Open a pprof file<input id="fg-file" class="fg-hidden" type="file" accept=".pb,.gz,.pprof,.prof,application/octet-stream"></label>
    <details class="fg-menu" id="fg-help"><summary class="lt-button" title="Keyboard and mouse ( ? )">Help</summary><div class="fg-menu-list fg-help">
      <h3>Mouse</h3>
      <dl><dt>Click</dt><dd>zoom into a frame; the row above it zooms out</dd><dt>Alt + click</dt><dd>callers and callees</dd><dt>Drag in the timeline</dt><dd>choose a range</dd></dl>
      <h3>Keyboard</h3>
      <dl><dt><kbd>/</kbd></dt><dd>search; <kbd>Esc</kbd> in it clears</dd>
      <dt><kbd>g</kbd></dt><dd>go to the flame graph</dd>
      <dt><kbd>↑</kbd> <kbd>↓</kbd></dt><dd>caller, largest callee</dd>
      <dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>the frame beside</dd>
      <dt><kbd>Enter</kbd></dt><dd>zoom in</dd>
      <dt><kbd>Esc</kbd> <kbd>Backspace</kbd></dt><dd>zoom out</dd>
      <dt><kbd>s</kbd></dt><dd>callers and callees</dd>
      <dt><kbd>Home</kbd></dt><dd>the first frame</dd>
      <dt><kbd>?</kbd></dt><dd>this list</dd></dl>
      <h3>What you see</h3>
      <p>A frame is as wide as its share of the total; what it called is below it. Colour groups functions of one package. In a difference, orange grew and blue shrank. Hatched frames stand for smaller ones: zoom in, and they are asked for.</p>
    </div></details>
  </div>
  <nav class="fg-crumbs" id="fg-crumbs" aria-label="The way to what is shown"></nav>
  <div class="fg-legend" id="fg-legend" hidden></div>
  <div id="fg-empty" hidden></div>
  <div class="fg-panels" id="fg-panels">
    <div class="fg-panel" id="fg-panel-left"><h3 class="fg-panel-title" hidden></h3><div class="fg-panel-table"></div><div class="fg-panel-chart"></div></div>
    <div class="fg-panel" id="fg-panel-right" hidden><h3 class="fg-panel-title"></h3><div class="fg-panel-table"></div><div class="fg-panel-chart"></div></div>
  </div>
  <div id="fg-sandwich" hidden>
    <div class="fg-sandwich-head" id="fg-sandwich-head"></div>
    <h3 class="fg-sandwich-title">Callers</h3><div id="fg-callers"></div>
    <h3 class="fg-sandwich-title">What it calls</h3><div id="fg-callees"></div>
  </div>
  <div class="fg-current" id="fg-current" aria-live="polite"></div>
</section>
<div class="fg-tip" id="fg-tip" hidden></div>
`;

export const SIDE = `
<h3 class="fg-side-title" hidden></h3>
<div class="fg-row fg-times">
  <label class="fg-inline fg-preset">Time
    <select class="lt-input" data-is="preset">
      <option value="now-15m">last 15 minutes</option>
      <option value="now-1h">last hour</option>
      <option value="now-6h">last 6 hours</option>
      <option value="now-24h">last 24 hours</option>
      <option value="now-7d">last 7 days</option>
      <option value="all">all there is</option>
      <option value="chosen">from – until</option>
    </select></label>
  <label class="fg-inline">from <input class="lt-input" data-is="from" type="datetime-local" step="1"></label>
  <label class="fg-inline">until <input class="lt-input" data-is="until" type="datetime-local" step="1"></label>
  <label class="fg-inline" data-is="zone-label">in <select class="lt-input" data-is="zone"></select></label>
  <span class="fg-steps">
    <button type="button" class="lt-button" data-is="earlier" title="Earlier" aria-label="Earlier">←</button>
    <button type="button" class="lt-button" data-is="wider" title="Three times as long" aria-label="Three times as long">↔</button>
    <button type="button" class="lt-button" data-is="later" title="Later" aria-label="Later">→</button>
    <button type="button" class="lt-button" data-is="again" title="Ask again" aria-label="Ask again">↻</button>
  </span>
</div>
<div class="fg-filters" data-is="filters" role="group" aria-label="Label filters"></div>
<div class="fg-timeline" data-is="timeline" role="img" aria-label="The total over time"></div>
<div class="fg-timeline-foot"><span data-is="timeline-about">&nbsp;</span> <output data-is="readout"></output></div>
`;
