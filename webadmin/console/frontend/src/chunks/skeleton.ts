// The fixed parts of the timeline's page. Nothing that comes from data stands here.

export const SKELETON = `
<div id="ct-message" role="alert"></div>
<section class="lt-section ct-main" aria-label="Timeline">
  <div class="ct-tools">
    <span class="ct-steps" role="group" aria-label="Move and zoom">
      <button type="button" class="lt-button" id="ct-earlier" title="Earlier ( Shift + ← )" aria-label="Earlier">←</button>
      <button type="button" class="lt-button" id="ct-out" title="Zoom out ( - )" aria-label="Zoom out">−</button>
      <button type="button" class="lt-button" id="ct-in" title="Zoom in ( + )" aria-label="Zoom in">+</button>
      <button type="button" class="lt-button" id="ct-later" title="Later ( Shift + → )" aria-label="Later">→</button>
    </span>
    <button type="button" class="lt-button" id="ct-everything" title="The whole timeline ( 0 )">Everything</button>
    <button type="button" class="lt-button" id="ct-newest" title="The newest chunks ( n )">Newest</button>
    <label class="ct-inline">go to <input class="lt-input" id="ct-day" type="date"></label>
    <output id="ct-range" class="ct-range"></output>
    <details class="ct-menu" id="ct-help"><summary class="lt-button" title="Keyboard and mouse ( ? )">Help</summary><div class="ct-menu-list" id="ct-keys">
      <p>Wheel: zoom. Drag: pan. Click a chunk: what is known of it. Click a task: its page.</p>
      <dl><dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>the chunk beside</dd>
      <dt><kbd>Enter</kbd></dt><dd>open the chunk, or zoom into the column</dd>
      <dt><kbd>Shift</kbd> <kbd>←</kbd> <kbd>→</kbd></dt><dd>pan</dd>
      <dt><kbd>+</kbd> <kbd>-</kbd></dt><dd>zoom</dd>
      <dt><kbd>Home</kbd> <kbd>End</kbd></dt><dd>first and last chunk in view</dd>
      <dt><kbd>0</kbd></dt><dd>everything</dd><dt><kbd>n</kbd></dt><dd>the newest</dd>
      <dt><kbd>Esc</kbd></dt><dd>close the chunk</dd></dl>
    </div></details>
  </div>
  <div id="ct-notices" class="ct-notices"></div>
  <ul class="ct-legend" id="ct-legend" aria-label="What the colours mean, and how many chunks there are of each in view"></ul>
  <div class="ct-host" id="ct-host"></div>
  <div id="ct-empty" hidden></div>
  <p class="lt-foot ct-foot"><span id="ct-columns"></span> <span id="ct-said" aria-live="polite"></span></p>
</section>
<section class="lt-section ct-panel" id="ct-panel" aria-labelledby="ct-panel-title" hidden>
  <div class="lt-title ct-panel-head"><h2 id="ct-panel-title" tabindex="-1"></h2>
    <span class="ct-steps"><button type="button" class="lt-button" id="ct-before" aria-label="The chunk before">←</button>
    <button type="button" class="lt-button" id="ct-after" aria-label="The chunk after">→</button>
    <button type="button" class="lt-button" id="ct-close">Close</button></span></div>
  <div id="ct-panel-body" class="ct-panel-body"></div>
</section>
<section class="lt-section" aria-label="Tasks in view"><h2 class="lt-title">Tasks in view</h2><div id="ct-tasks"></div></section>
<details class="lt-section" id="ct-table"><summary class="lt-title">Chunks in view as a table</summary><div id="ct-rows"></div></details>
<div class="ct-tip" id="ct-tip" hidden></div>
`;
