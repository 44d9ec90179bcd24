// What the theme's pages do that their attributes cannot say: Alpine's build for a Content-Security-Policy without
// 'unsafe-eval' reads one expression per attribute, and knows no functions, globals or statements in it.

{
  const SIDEBAR = "sidebarDesktopOpen";

  /** What expressions of the theme may read and set of the window. */
  const seenLocation = {
    get hash() {
      return window.location.hash;
    },
    get href() {
      return window.location.href;
    },
    set href(address) {
      window.location.assign(address);
    },
    get pathname() {
      return window.location.pathname;
    },
    get search() {
      return window.location.search;
    },
  };

  /** The page's frame; `tab` is the first tab of a page about rows of a model, absent elsewhere. */
  function adminPage(tab) {
    return {
      activeTab: "",
      sidebarMobileOpen: false,
      sidebarDesktopOpen: localStorage.getItem(SIDEBAR) !== "0",
      init() {
        this.activeTab = tab === undefined ? "" : getCurrentTab() || tab;
        this.$watch(SIDEBAR, (isOpen) => localStorage.setItem(SIDEBAR, isOpen ? "1" : "0"));
      },
    };
  }

  /** The theme's search over all pages, which opens what is selected here unless a key says otherwise. */
  function adminCommand() {
    return {
      ...searchCommand(),
      selectHere(event, addHistory) {
        if (!event.metaKey && !event.ctrlKey) {
          this.selectItem(addHistory, false);
        }
      },
    };
  }

  document.addEventListener("alpine:init", () => {
    Alpine.data("theme", (chosen) => ({ ...theme(chosen), window: { location: seenLocation } }));
    Alpine.data("searchForm", searchForm);
    Alpine.data("adminCommand", adminCommand);
    Alpine.data("adminPage", adminPage);
  });

  // The front page is not replaced while nobody looks at it, or while somebody selects text in it.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const isRead = document.visibilityState === "visible" && !document.getSelection().toString();
    if (event.target.id === "overview" && !isRead) {
      event.preventDefault();
    }
  });
}
