// Takes the place of the theme's Alpine: this build reads expressions by a parser of its own and needs no 'unsafe-eval'.
import "@alpinejs/csp/dist/cdn.min.js";
