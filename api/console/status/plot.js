// Draws lines over the last hour, without a library: SVG for eyes, and beside it the same as a table for everybody else.

import { el } from "../dom.js";

const SVG = "http://www.w3.org/2000/svg";
const NARROW = 480;
const HEIGHT = 150;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;
const HOUR = 3600_000;
/** Rows of a table: each of so many minutes. */
const MINUTES = 5;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** The least of 1, 2 and 5 times a power of ten that is no less. */
export function roundedUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}

export function written(value, unit = "") {
  if (value === null || value === undefined) return "–";
  const digits = value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toLocaleString("en", { maximumFractionDigits: digits })}${unit && ` ${unit}`}`;
}

/**
 * A figure that stays, with `draw(points, seconds)`. `lines` are `[member, name]` of points, at most four; a point may lack
 * one (null). `unit` stands behind numbers.
 */
export function plot({ title, lines, unit = "" }) {
  const id = `plot-${lines[0][0]}`;
  const picture = svg("svg", { height: HEIGHT, role: "img", "aria-labelledby": `${id}-title ${id}-now` });
  const now = el("ul.legend", { id: `${id}-now` });
  const body = el("tbody");
  const table = el("details", {}, el("summary", {}, "As a table"),
    el("div.scroll", { tabIndex: 0, role: "region", "aria-label": `${title}, as a table` },
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Until"), lines.map(([, name]) => el("th", { scope: "col" }, name)))), body)));
  const node = el("figure.plot", {}, el("figcaption", { id: `${id}-title` }, title), now, picture, table);

  let drawn = [[], 1];
  // It is drawn in the pixels that it has, so that its words have the size of all others.
  new ResizeObserver(() => draw(...drawn)).observe(picture);

  function draw(points, seconds) {
    drawn = [points, seconds];
    const width = picture.clientWidth || NARROW;
    const last = points.at(-1);
    const end = last ? Date.parse(last.at) : Date.now();
    const most = roundedUp(Math.max(0, ...points.flatMap((point) => lines.map(([member]) => point[member] ?? 0))));
    const x = (at) => LEFT + (1 - (end - at) / HOUR) * (width - LEFT - 8);
    const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
    picture.replaceChildren(
      ...[0, most / 2, most].flatMap((value) => [
        svg("line", { x1: LEFT, x2: width - 8, y1: y(value), y2: y(value), class: "grid" }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, written(value)),
      ]),
      ...(width < NARROW ? [60, 30, 0] : [60, 45, 30, 15, 0]).map((minutes) => svg("text", {
        x: x(end - minutes * 60_000), y: HEIGHT - 4, "text-anchor": minutes === 60 ? "start" : minutes ? "middle" : "end",
      }, minutes ? `−${minutes} min` : "now")),
      ...lines.map(([member], number) => svg("path", { d: path(points, member, x, y, seconds), class: `line-${number}` })));
    now.replaceChildren(...lines.map(([member, name], number) => el("li", {},
      el(`span.swatch.line-${number}`, { "aria-hidden": "true" }), `${name} `, el("strong", {}, written(last?.[member], unit)))));
    body.replaceChildren(...spans(points).map(([at, inside]) => el("tr", {},
      el("th", { scope: "row" }, new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })),
      lines.map(([member]) => el("td", {}, written(largest(inside, member), unit))))));
  }

  return { node, draw };
}

/** A line with a gap wherever points or values are missing. */
function path(points, member, x, y, seconds) {
  let d = "";
  let before = Number.NEGATIVE_INFINITY;
  for (const point of points) {
    const value = point[member];
    if (value === null) continue;
    const at = Date.parse(point.at);
    const follows = at - before <= seconds * 1500;
    // A point alone is a short stroke, so that it is seen.
    d += follows ? `L${x(at).toFixed(1)} ${y(value).toFixed(1)}` : `M${(x(at) - 1.5).toFixed(1)} ${y(value).toFixed(1)}h1.5`;
    before = at;
  }
  return d;
}

/** Newest first: `[end, points]` of each so many minutes. */
function spans(points) {
  const found = new Map();
  for (const point of points) {
    const end = Math.ceil(Date.parse(point.at) / (MINUTES * 60_000)) * MINUTES * 60_000;
    found.set(end, [...(found.get(end) ?? []), point]);
  }
  return [...found].reverse();
}

function largest(points, member) {
  const values = points.map((point) => point[member]).filter((value) => value !== null);
  return values.length ? Math.max(...values) : null;
}
