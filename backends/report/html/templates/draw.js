// Drawing: the machine and the charts, from the facts of a view. No state but what is passed in.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 15; // height of a row of a chart

function make(name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

function digits(value) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

function microseconds(value) {
  return value >= 1e4 ? `${digits(value / 1e3)} ms` : `${digits(value)} µs`;
}

function percent(share) { return `${(100 * share).toFixed(1)} %`; }

// Shades of use, 0 … 5: unused, then fifths.
function shade(share) { return share <= 0 ? 0 : Math.min(5, 1 + Math.floor(share * 5 - 1e-9)); }

// ---- the machine --------------------------------------------------------------------------------

// A machine of many hosts is drawn as hosts; `open`, the number of one of them, is drawn by itself.
function drawMachine(svg, map, view, id, open) {
  const small = map.folded;
  svg.dataset.open = open === null ? "" : String(open);
  if (!small) return drawMap(svg, map, view, id, null);
  if (open !== null) return drawMap(svg, map, view, id, new Set([...map.nodes.keys()].filter((n) => small.at[n] === open)));
  return drawMap(svg, small, view && foldedUse(map, view), id, null);
}

// Use of the links of hosts together: that of the busiest of them.
function foldedUse(map, view) {
  const share = new Array(map.folded.links.length).fill(0);
  map.folded.of.forEach((to, link) => {
    if (to >= 0 && view.share[link] > share[to]) share[to] = view.share[link];
  });
  return { share, links: share.length };
}

// The part of the drawing in which some nodes stand, with their frames left out.
function around(map, nodes) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const at of nodes) {
    const [, , x, y, half] = map.nodes[at];
    [left, right] = [Math.min(left, x - half), Math.max(right, x + half)];
    [top, bottom] = [Math.min(top, y - 13), Math.max(bottom, y + 13)];
  }
  const edge = 24;
  return [left - edge, top - edge, right - left + 2 * edge, bottom - top + 2 * edge];
}

function drawMap(svg, map, view, id, only) {
  const box = only ? around(map, only) : [0, 0, map.width, map.height];
  svg.setAttribute("viewBox", box.join(" "));
  svg.style.maxWidth = `${1.45 * box[2]}px`;
  svg.replaceChildren(arrows(id));
  const layers = ["boxes", "shared", "links", "picked", "nodes"].map((name) => {
    const layer = make("g", { class: name });
    svg.append(layer);
    return layer;
  });
  for (const [name, x, y, width, height] of only ? [] : map.boxes) {
    layers[0].append(make("rect", { x, y, width, height, rx: 10 }));
    layers[4].append(make("text", { x: x + 10, y: y + 18, class: "host" }, name));
  }
  const widest = Math.max(1, ...map.links.map((link) => link[2]));
  const paths = new Map();
  const wraps = new Set(map.wraps);
  map.links.forEach((link, at) => {
    if (only && !(only.has(link[0]) && only.has(link[1]))) return;
    const d = link[3], number = map.index[at];
    const share = view ? view.share[number] : 0;
    const width = ((map.of ? 0.4 : 1) * (1.1 + 2.2 * Math.sqrt(link[2] / widest))).toFixed(2);
    const path = make("path", { d, "stroke-width": width,
      class: `link u${shade(share)}${wraps.has(number) ? " wrap" : ""}` });
    path.dataset.link = map.of ? `of hosts ${number}` : number;
    path.append(make("title", {}, linkWords(map, at, view)));
    layers[2].append(path);
    paths.set(number, path);
  });
  map.resources.forEach(([name, speed, members], at) => {
    const row = view ? view.links + at : -1, share = view ? view.share[row] : 0;
    const group = make("g", { class: `resource u${shade(share)}` });
    group.dataset.link = row;
    const told = `${name}, shared by ${members.length} links: ${digits(speed)} GB/s`;
    group.append(make("title", {}, view ? `${told}, busy ${percent(share)} of the time` : told));
    if (only && !members.some((link) => paths.has(link))) return;
    for (const link of members) {
      const path = paths.get(link);
      if (path) group.append(make("path", { d: path.getAttribute("d") }));
    }
    layers[1].append(group);
  });
  map.nodes.forEach(([name, kind, x, y, half, own, text], at) => {
    if (only && !only.has(at)) return;
    const node = make("g", { class: `node ${kind}`, transform: `translate(${x} ${y})` });
    node.dataset.node = at;
    node.append(kind === "gpu" || kind === "host" ? make("circle", { r: 13 })
      : make("rect", { x: -half, y: -10, width: 2 * half, height: 20, rx: 4 }));
    node.append(make("text", { y: 4 }, text), make("title", {}, `${kind} ${name}${own ? ` (${own})` : ""}`));
    layers[4].append(node);
  });
  return paths;
}

function arrows(id) {
  const defs = make("defs");
  const marker = make("marker", { id: `${id}-arrow`, viewBox: "0 0 8 8", refX: 6, refY: 4,
    markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" });
  marker.append(make("path", { d: "M0 0L8 4L0 8z" }));
  defs.append(marker);
  return defs;
}

function linkWords(map, at, view) {
  const [src, dst, speed] = map.links[at];
  const own = map.own[map.index[at]] ? ` (${map.own[map.index[at]]})` : "";
  const told = `${map.nodes[src][0]} → ${map.nodes[dst][0]}${own}: ${digits(speed)} GB/s`;
  return view ? `${told}, busy ${percent(view.share[map.index[at]])} of the time` : told;
}

// ---- charts -------------------------------------------------------------------------------------

// The bars of a row as [start, end, item, kind] in ticks; unpacked once.
function bars(row) {
  if (!row.bars) {
    row.bars = [];
    let start = 0;
    for (let i = 0; i < row.b.length; i += 4) {
      start += row.b[i];
      row.bars.push([start, start + row.b[i + 1], row.b[i + 2], row.b[i + 3]]);
    }
  }
  return row.bars;
}

function niceStep(span, most) {
  const rough = span / most, size = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * size).find((step) => step >= rough * 0.999);
}

// One chart: names to the left, bars to the right. Returns what finds bars under the pointer.
function drawLane(place, lane, view, rows, width, wanted) {
  const height = rows.length * ROW + 24, ticks = view.tick, zoom = width / ticks;
  const names = place.querySelector(".names"), chart = place.querySelector(".bars");
  const widest = Math.max(8, ...rows.map((row) => row.n.length));
  const room = Math.min(230, 6.4 * widest + 16);
  size(names, room, height);
  size(chart, width + 12, height);
  names.replaceChildren();
  chart.replaceChildren();
  const span = wanted || view.us, step = niceStep(span, Math.max(2, width / 110));
  for (let k = 0; k * step <= span * 1.0001; k++) {
    const x = (k * step / span * width).toFixed(1);
    chart.append(make("line", { class: "grid", x1: x, x2: x, y1: 18, y2: height }));
    const anchor = k === 0 ? "start" : Number(x) > width - 24 ? "end" : "middle";
    chart.append(make("text", { class: "tick", x, y: 12, "text-anchor": anchor },
      `${digits(k * step)} ${view.unit || "µs"}`));
  }
  rows.forEach((row, at) => {
    const y = 20 + at * ROW;
    const name = make("text", { x: room - 8, y: y + 11, class: "name" }, row.n);
    name.dataset.link = row.l;
    name.append(make("title", {}, `${row.n}: busy ${percent(row.u)} of the time`));
    names.append(name);
    chart.append(make("line", { class: "rule", x1: 0, x2: width, y1: y + ROW - 1, y2: y + ROW - 1 }));
    if (row.d) drawShades(chart, row.d, width, y);
    const paths = new Map();
    for (const [start, end, , kind] of bars(row)) {
      const x = start * zoom, long = Math.max(0.7, (end - start) * zoom - 0.4);
      const box = `M${x.toFixed(1)} ${y + 1}h${long.toFixed(1)}v${ROW - 4}h${(-long).toFixed(1)}z`;
      paths.set(kind, (paths.get(kind) || "") + box);
    }
    for (const [kind, d] of paths) chart.append(make("path", { d, class: `bar k${kind}` }));
  });
  chart.append(make("g", { class: "over" }));
}

function size(svg, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
}

function drawShades(chart, cells, width, y) {
  const wide = width / cells.length, paths = new Map();
  [...cells].forEach((cell, at) => {
    if (cell === "0") return;
    const box = `M${(at * wide).toFixed(1)} ${y + 1}h${wide.toFixed(1)}v${ROW - 4}h${(-wide).toFixed(1)}z`;
    paths.set(cell, (paths.get(cell) || "") + box);
  });
  for (const [cell, d] of paths) {
    chart.append(make("path", { d, class: "cell", "fill-opacity": 0.12 + 0.08 * Number(cell) }));
  }
}

// The bars of some items, drawn over the others.
function overlay(place, rows, view, width, items) {
  const layer = place.querySelector(".over"), zoom = width / view.tick;
  layer.replaceChildren();
  if (!items) return 0;
  let drawn = 0;
  rows.forEach((row, at) => {
    const y = 20 + at * ROW;
    for (const [start, end, item, kind] of bars(row)) {
      if (!items.has(item)) continue;
      const box = make("rect", { x: (start * zoom).toFixed(1), y, height: ROW - 2, rx: 1.5,
        width: Math.max(2, (end - start) * zoom).toFixed(1), class: `on k${kind}` });
      box.dataset.item = item;
      layer.append(box);
      drawn++;
    }
  });
  return drawn;
}
