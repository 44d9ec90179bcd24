// Bundles the pages' scripts into the static files, with the licences of the packages that are in it.

import { build } from "esbuild";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";

const folder = "../static/console/bundle";
const { metafile } = await build({
  entryPoints: ["src/flame-graph.ts", "src/chunk-timeline.ts"],
  bundle: true,
  minify: true,
  keepNames: true,
  target: "es2022",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  outdir: folder,
});

const packages = new Set(
  Object.keys(metafile.inputs).flatMap((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1] ?? []),
);
const licences = [...packages].sort().map((name) => {
  const own = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${own}/package.json`, "utf8"));
  const file = readdirSync(own).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file && existsSync(`${own}/${file}`) ? readFileSync(`${own}/${file}`, "utf8").trim() : "";
  return `${name} ${version} (${license})\n\n${text}\n`;
});
writeFileSync(`${folder}/licences.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));
