// What a person does with the page: choose a view, pick chunks, look closer. Everything that a
// pointer can do, the list of chunks and the tables do from the keyboard.

const data = JSON.parse(document.getElementById("data").textContent);

class View {
  constructor(element) {
    this.element = element;
    this.number = Number(element.dataset.view);
    this.facts = data.views[this.number];
    this.map = data.maps[this.facts.map];
    this.chunk = null;
    this.hop = null;
    this.chain = false;
    this.zoom = 1;
    this.ready = false;
  }

  word(lane, kind) { return (lane.kinds.find((one) => one[0] === kind) || ["", ""])[1]; }

  time(value) { return this.facts.unit ? `${digits(value)} ${this.facts.unit}` : microseconds(value); }

  one(selector) { return this.element.querySelector(selector); }

  // Drawn when it is first seen: there may be many views.
  show() {
    if (this.ready) return;
    this.ready = true;
    this.facts.links = this.map ? this.facts.share.length - this.map.resources.length : 0;
    this.index();
    if (this.map) {
      const draw = (open) => drawMachine(this.one(".map"), this.map, this.facts, `v${this.number}`, open);
      openable(this.one(".map"), this.one(".hosts"), this.map, (open) => { draw(open); this.mark(); });
      draw(null);
      this.one(".map").addEventListener("click", (event) => this.onMap(event));
    }
    this.fill();
    this.lanes = [...this.element.querySelectorAll(".lane")].map((place, at) => this.lane(place, at));
    this.draw();
    this.listen();
    this.pick(null);
  }

  // For each table of items: which of them move a chunk, and when each begins and arrives.
  index() {
    this.moves = this.facts.items.map((table) => {
      const found = new Map();
      table.set.forEach((set, item) => {
        for (const chunk of table.sets ? table.sets[set] : [set]) {
          if (!found.has(chunk)) found.set(chunk, []);
          found.get(chunk).push(item);
        }
      });
      return found;
    });
    this.times = this.facts.items.map((table) => table.set.map(() => [Infinity, -1, 0]));
    for (const lane of this.facts.lanes) {
      if (lane.what !== "links") continue;
      const times = this.times[lane.of], table = this.facts.items[lane.of];
      for (const row of lane.rows) {
        for (const [start, end, item, kind] of bars(row)) {
          if (!times[item]) continue;
          times[item][0] = Math.min(times[item][0], start);
          times[item][1] = Math.max(times[item][1], end + table.late[table.route[item]]);
          times[item][2] = kind;
        }
      }
    }
  }

  fill() {
    const list = this.one(".chunks");
    if (!list) return;
    this.ids = [...this.moves[0].keys()].sort((a, b) => a - b);
    list.replaceChildren(...this.ids.map((chunk) => {
      const name = this.facts.chunks[chunk];
      return new Option(`${chunk}: ${name ? `${name[0]} → ${name[1]}` : "further chunk"}`, chunk);
    }));
  }

  lane(place, at) {
    const facts = this.facts.lanes[at];
    const busiest = [...facts.rows].sort((a, b) => b.u - a.u).slice(0, 40);
    const few = facts.rows.length > 48 ? facts.rows.filter((row) => busiest.includes(row)) : facts.rows;
    const lane = { place, facts, few, rows: few };
    const all = place.querySelector(".all");
    if (all) {
      all.hidden = few.length === facts.rows.length;
      const told = place.querySelector(".few");
      told.hidden = all.hidden;
      told.textContent = ` the ${few.length} busiest of ${facts.rows.length} rows`;
      all.addEventListener("click", () => {
        const more = lane.rows === few;
        lane.rows = more ? facts.rows : few;
        all.textContent = more ? `Only the ${few.length} busiest rows` : `All ${facts.rows.length} rows`;
        all.setAttribute("aria-pressed", String(more));
        told.hidden = more;
        this.draw();
      });
    }
    const chart = place.querySelector(".bars");
    chart.addEventListener("click", (event) => {
      const found = this.under(lane, event);
      this.pick(found ? this.chunkOf(lane, found[2]) : null, true);
    });
    chart.addEventListener("mousemove", (event) => this.hover(lane, event));
    chart.addEventListener("mouseleave", () => tip(null));
    place.querySelector(".chart").addEventListener("keydown", (event) => this.onKey(event));
    return lane;
  }

  draw() {
    for (const lane of this.lanes) {
      const box = lane.place.querySelector(".scroll"), names = lane.place.querySelector(".names");
      const widest = Math.max(8, ...lane.rows.map((row) => row.n.length));
      const room = box.parentElement.clientWidth - Math.min(230, 6.4 * widest + 16) - 18;
      lane.width = Math.max(260, room) * this.zoom;
      drawLane(lane.place, lane.facts, this.facts, lane.rows, lane.width, lane.facts.span);
      names.style.flex = "none";
    }
    this.mark();
  }

  under(lane, event) {
    const box = lane.place.querySelector(".bars").getBoundingClientRect();
    const row = lane.rows[Math.floor((event.clientY - box.top - 20) / ROW)];
    if (!row) return null;
    const at = (event.clientX - box.left) / lane.width * this.facts.tick;
    const near = 2 / lane.width * this.facts.tick;
    return bars(row).find((bar) => bar[0] - near <= at && at <= bar[1] + near) || null;
  }

  chunksOf(lane, item) {
    const table = this.facts.items[lane.facts.of], set = table.set[item];
    return table.sets ? table.sets[set] : [set];
  }

  chunkOf(lane, item) {
    const found = this.chunksOf(lane, item);
    return found.length ? found[0] : null;
  }

  hover(lane, event) {
    const found = this.under(lane, event);
    if (!found) { tip(null); return; }
    const scale = (lane.facts.span || this.facts.us) / this.facts.tick;
    const chunks = this.chunksOf(lane, found[2]);
    const what = chunks.length ? `chunk ${chunks.slice(0, 8).join(", ")}${chunks.length > 8 ? " …" : ""}, ` : "";
    tip(`${what}${this.word(lane.facts, found[3])}: ${this.time(found[0] * scale)} to ${this.time(found[1] * scale)}`, event);
  }

  onMap(event) {
    const link = event.target.closest("[data-link]");
    if (link && !link.dataset.link.startsWith("of")) this.light(Number(link.dataset.link));
  }

  // A link or resource is marked in the map and in the charts.
  light(row) {
    for (const element of this.element.querySelectorAll(".lit")) element.classList.remove("lit");
    for (const element of this.element.querySelectorAll(`[data-link="${row}"]`)) {
      element.classList.add("lit");
    }
    const found = this.facts.lanes.flatMap((lane) => lane.rows).find((one) => one.l === row);
    if (found) this.say(`${found.n}: busy ${percent(found.u)} of the time.`);
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") this.pick(null, true);
    else if (step) {
      const at = this.chunk === null ? (step > 0 ? -1 : 0) : this.ids.indexOf(this.chunk);
      this.pick(this.ids[(at + step + this.ids.length) % this.ids.length], true);
    } else if (turn && this.tree.length) {
      const at = this.hop === null ? (turn > 0 ? -1 : 0) : this.tree.indexOf(this.hop);
      this.hop = this.tree[(at + turn + this.tree.length) % this.tree.length];
      this.mark();
      this.say(this.hopWords(this.hop));
    } else return;
    event.preventDefault();
  }

  // The transfers that a chunk makes, in order of time.
  pick(chunk, far = false) {
    this.chunk = chunk === undefined ? null : chunk;
    this.hop = null;
    this.chain = false;
    const items = this.chunk === null ? [] : (this.moves[0].get(this.chunk) || []);
    const times = this.times[0];
    this.tree = items.filter((item) => this.route(item).length).sort((a, b) => times[a][0] - times[b][0]);
    const list = this.one(".chunks");
    if (list && far) {
      list.value = this.chunk === null ? "" : String(this.chunk);
      if (this.chunk === null) list.selectedIndex = -1;
    }
    this.table();
    this.mark();
    if (this.chunk === null) { this.say("No chunk is picked."); return; }
    if (!this.map) {
      this.say(`Chunk ${this.chunk}: ${items.length} instructions move it.`);
      return;
    }
    const links = new Set(this.tree.flatMap((item) => this.route(item)));
    const last = Math.max(0, ...this.tree.map((item) => times[item][1])) * this.facts.us / this.facts.tick;
    this.say(`Chunk ${this.chunk}: ${this.tree.length} ${this.facts.moved || "transfers"} over ${links.size} links; the last arrives at ${microseconds(last)}.`);
  }

  route(item) {
    const table = this.facts.items[0];
    return table.routes[table.route[item]];
  }

  // Of a transfer its two ranks; of a cast all that it comes from and goes to, and its switches.
  parts(item) {
    const links = this.route(item).map((number) => this.map.links[this.map.index.indexOf(number)]).filter((one) => one);
    const isRank = (node) => this.map.nodes[node][1] === "gpu";
    const unlike = (nodes) => [...new Set(nodes)].sort((a, b) => a - b);
    return {
      from: unlike(links.map((one) => one[0]).filter(isRank)),
      to: unlike(links.map((one) => one[1]).filter(isRank)),
      via: unlike(links.flatMap((one) => [one[0], one[1]]).filter((node) => !isRank(node))),
    };
  }

  ends(item) {
    const route = this.route(item);
    const link = (number) => this.map.links[this.map.index.indexOf(number)];
    const first = link(route[0]), last = link(route[route.length - 1]);
    if (!first || !last) return ["", "", ""];
    const name = (node) => this.map.nodes[node][0];
    const some = (nodes) => nodes.length > 3 ? `${name(nodes[0])} … ${name(nodes[nodes.length - 1])} (${nodes.length})` : nodes.map(name).join(", ");
    const { from, to, via } = this.parts(item);
    if (from.length > 1 || to.length > 1) return [some(from), some(to), via.map(name).join(", ")];
    return [name(first[0]), name(last[1]), route.slice(1).map((one) => link(one)).map((one) => one ? name(one[0]) : "…").join(", ")];
  }

  hopWords(item) {
    const [from, to, via] = this.ends(item), [start, end, kind] = this.times[0][item];
    const scale = this.facts.us / this.facts.tick;
    return `${from} to ${to}${via ? ` through ${via}` : ""}, ${this.word(this.facts.lanes[0], kind)}, from ${microseconds(start * scale)} to ${microseconds(end * scale)}`;
  }

  table() {
    const body = this.one(".tree tbody"), scale = this.facts.us / this.facts.tick;
    if (!body) return;
    this.one(".tree").hidden = !this.tree.length;
    body.replaceChildren(...this.tree.slice(0, 200).map((item) => {
      const line = document.createElement("tr"), [from, to, via] = this.ends(item);
      const [start, end, kind] = this.times[0][item];
      for (const text of [`${from} → ${to}`, via || "–", this.word(this.facts.lanes[0], kind), digits(start * scale), digits(end * scale)]) {
        const cell = document.createElement("td");
        cell.textContent = text;
        if (line.children.length > 2) cell.className = "number";
        line.append(cell);
      }
      line.dataset.item = item;
      return line;
    }));
  }

  // Mark what is picked: in the map, in every chart, in the table.
  mark() {
    if (!this.lanes) return;
    const chain = this.chain ? this.facts.chain : null;
    const items = this.chunk !== null ? this.tree : chain;
    this.element.classList.toggle("picking", items !== null && items !== undefined);
    for (const lane of this.lanes) {
      let on = null;
      if (items) {
        on = new Set(this.chunk !== null ? this.moves[lane.facts.of].get(this.chunk) || []
          : lane.facts.of === 0 ? chain : []);
        if (this.hop !== null && lane.facts.of === 0) on = new Set([this.hop]);
      }
      overlay(lane.place, lane.rows, this.facts, lane.width, on);
    }
    for (const line of this.element.querySelectorAll(".tree tbody tr")) {
      line.classList.toggle("here", Number(line.dataset.item) === this.hop);
    }
    if (this.map) this.markMap(this.hop !== null ? [this.hop] : items || []);
  }

  markMap(items) {
    const svg = this.one(".map"), layer = svg.querySelector(".picked");
    layer.replaceChildren();
    for (const node of svg.querySelectorAll(".node")) node.classList.remove("from", "reached");
    const closed = this.map.folded && svg.dataset.open === "" ? this.map.folded : null;
    const shown = (node) => closed ? closed.at[node] : node;
    const lit = new Set(items.flatMap((item) => this.route(item)).map((one) => closed ? closed.of[one] : one));
    for (const number of lit) {
      const path = svg.querySelector(`.links [data-link="${closed ? "of hosts " : ""}${number}"]`);
      if (!path) continue;
      const copy = make("path", { d: path.getAttribute("d"), "marker-end": `url(#v${this.number}-arrow)` });
      copy.dataset.picked = number;
      layer.append(copy);
    }
    const from = new Set(), to = new Set();
    for (const item of items) {
      const route = this.route(item).map((number) => this.map.links[this.map.index.indexOf(number)]);
      if (!route.length || !route[0] || !route[route.length - 1]) continue;
      const ends = this.parts(item);
      for (const node of ends.from) from.add(shown(node));
      for (const node of ends.to) to.add(shown(node));
    }
    for (const node of svg.querySelectorAll(".node")) {
      const number = Number(node.dataset.node);
      node.classList.toggle("reached", to.has(number));
      node.classList.toggle("from", from.has(number) && !to.has(number));
    }
  }

  say(text) {
    const place = this.one(".status");
    if (place) place.textContent = text;
  }

  listen() {
    const list = this.one(".chunks");
    if (list) {
      list.addEventListener("change", () => this.pick(list.value === "" ? null : Number(list.value)));
      list.addEventListener("keydown", (event) => {
        if (["ArrowLeft", "ArrowRight", "Escape"].includes(event.key)) this.onKey(event);
      });
    }
    this.on(".clear", () => this.pick(null, true));
    this.on(".critical", () => {
      this.pick(null, true);
      this.chain = true;
      this.mark();
      this.say(`What the time is made of: ${this.facts.chain.length} transfers, each of which waited for the one before.`);
    });
    for (const [selector, factor] of [[".closer", 2], [".wider", 0.5]]) {
      this.on(selector, () => {
        this.zoom = Math.min(32, Math.max(1, this.zoom * factor));
        this.draw();
      });
    }
    for (const button of this.element.querySelectorAll("button[data-row]")) {
      button.addEventListener("click", () => this.light(Number(button.dataset.row)));
    }
  }

  on(selector, act) {
    const button = this.one(selector);
    if (button) button.addEventListener("click", act);
  }
}

// A word beside the pointer; the same facts are in the tables.
function tip(text, event) {
  const place = document.getElementById("tip");
  place.hidden = text === null;
  if (text === null) return;
  place.textContent = text;
  const left = Math.min(event.clientX + 14, window.innerWidth - place.offsetWidth - 8);
  place.style.left = `${Math.max(4, left)}px`;
  place.style.top = `${event.clientY + 16}px`;
}

// Hosts open by a click or by name, and close by a click beside them.
function openable(svg, list, map, draw) {
  if (!map.folded) return;
  const go = (open) => {
    if (list) list.value = open === null ? "" : String(open);
    draw(open);
  };
  svg.addEventListener("click", (event) => {
    const node = event.target.closest(".node");
    if (svg.dataset.open === "") {
      const at = node ? Number(node.dataset.node) : -1;
      if (at >= 0 && at < map.folded.hosts.length) go(at);
    } else if (!event.target.closest("[data-link]") && !node) {
      go(null);
    }
  });
  if (list) list.addEventListener("change", () => go(list.value === "" ? null : Number(list.value)));
}

const views = [...document.querySelectorAll("[data-view]")].map((element) => new View(element));
const chooser = document.getElementById("chooser");

function choose(number) {
  views.forEach((view) => {
    view.element.hidden = !data.pair && view.number !== number;
    if (!view.element.hidden) view.show();
  });
}

if (chooser) chooser.addEventListener("change", () => choose(Number(chooser.value)));
for (const link of document.querySelectorAll("[data-goto]")) {
  link.addEventListener("click", () => {
    chooser.value = link.dataset.goto;
    choose(Number(link.dataset.goto));
  });
}
choose(chooser ? Number(chooser.value) : 0);
for (const svg of document.querySelectorAll("svg.map[data-map]")) {
  const map = data.maps[Number(svg.dataset.map)];
  const draw = (open) => drawMachine(svg, map, null, "m", open);
  openable(svg, svg.parentElement.querySelector(".hosts"), map, draw);
  draw(null);
}

let waiting = 0;
let wide = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === wide) return;
  wide = window.innerWidth;
  window.clearTimeout(waiting);
  waiting = window.setTimeout(() => views.forEach((view) => view.ready && view.draw()), 120);
});
document.documentElement.dataset.ready = "yes";
