// Bundles the pages' scripts into the static files, with the licences of the packages that are in it.

import { build } from "esbuild";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

const folder = "console/bundle";
const { metafile } = await build({
  entryPoints: [
    { in: "src/flame-graph.ts", out: `${folder}/flame-graph` },
    { in: "src/chunk-timeline.ts", out: `${folder}/chunk-timeline` },
    { in: "src/alpine.ts", out: "unfold/js/alpine/alpine" }, // found before the theme's file of this name
  ],
  bundle: true,
  minify: true,
  keepNames: true,
  target: "es2022",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  outdir: "../static",
});

const packages = new Set(
  Object.keys(metafile.inputs).flatMap((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1] ?? []),
);
["@vue/reactivity", "@vue/shared"].forEach((name) => packages.add(name)); // are part of Alpine's file
const licences = [...packages].sort().map((name) => {
  const own = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${own}/package.json`, "utf8"));
  const file = readdirSync(own).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file && existsSync(`${own}/${file}`) ? readFileSync(`${own}/${file}`, "utf8").trim() : "";
  return `${name} ${version} (${license})\n\n${text}\n`;
});
writeFileSync(`../static/${folder}/licences.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));
