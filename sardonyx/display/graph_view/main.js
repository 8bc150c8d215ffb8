// Joins the parts: what is open, what is selected, and when to paint.
import { Camera } from "./camera.js";
import { Colours, modesOf, readPalette } from "./colours.js";
import { element } from "./elements.js";
import { ancestors, groupsInsideOut, isGroup, readGraph, titleOf } from "./graph.js";
import { KEYS, listen } from "./keyboard.js";
import { forget, layOut } from "./layout.js";
import { buildLevels } from "./levels.js";
import { paint } from "./painter.js";
import { fillPanel } from "./panel.js";
import { buildScene } from "./scene.js";
import { searchBox } from "./search.js";
import { Theme } from "./theme.js";

// Boxes that are laid out at first: as many as a reader takes in.
const MOST_AT_FIRST = 60;
// Boxes that dagre lays out in about a second; of more, a quicker layout takes over.
const MOST_FOR_DAGRE = 1000;
// Milliseconds of work between two moments in which the page can respond.
const SLICE = 40;

class View {
  constructor(data) {
    this.graph = readGraph(data);
    this.levels = buildLevels(this.graph);
    this.colours = new Colours(this.graph);
    this.canvas = document.getElementById("canvas");
    this.context = this.canvas.getContext("2d");
    this.panel = document.getElementById("panel");
    this.selected = null;
    this.camera = new Camera(this.canvas, () => this.repaint());
    this.unfoldAtFirst();
    this.scene = buildScene(this.graph, this.levels);
    this.theme = new Theme(() => this.recolour());
    this.fillBar();
    this.recolour();
    listen(this);
    new ResizeObserver(() => this.resized()).observe(this.canvas);
  }

  // A notebook can show the page before it has a size.
  resized() {
    if (!this.camera.width || !this.camera.height) return;
    if (!this.isPlaced) this.camera.fit(this.scene, { whole: false, smooth: false });
    this.isPlaced = true;
    this.paint();
  }

  repaint() {
    this.pending ??= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.pending);
    this.pending = undefined;
    if (this.camera.width) paint(this);
  }

  // -- folding ------------------------------------------------------------------------------------

  // Opens level by level; siblings open together, or none of them.
  unfoldAtFirst() {
    const { items, root } = this.graph;
    let shown = items[root].members.length, level = [items[root]];
    while (level.length) {
      const next = [];
      for (const outer of level) {
        const groups = outer.members.map((id) => items[id]).filter(isGroup);
        const added = groups.reduce((sum, group) => sum + group.members.length, 0);
        if (shown + added > MOST_AT_FIRST) continue;
        shown += added;
        groups.forEach((group) => { group.open = true; });
        next.push(...groups);
      }
      level = next;
    }
  }

  toggle(id) {
    const item = this.graph.items[id], before = this.scene.place.get(id);
    item.open = !item.open;
    this.relaid(item);
    const after = this.scene.place.get(id);
    if (before && after) {  // The corner stays where it is on the screen.
      this.camera.x += after.x - before.x;
      this.camera.y += after.y - before.y;
    }
    this.refresh();
    this.announce(`${titleOf(item)} ${item.open ? "unfolded" : "folded"}`);
  }

  // In slices: while the groups of a large graph are laid out, the page can still be used.
  async openAll(open) {
    const groups = groupsInsideOut(this.graph), change = this.changed();
    this.graph.isVast = open && this.graph.size > MOST_FOR_DAGRE;
    for (const item of groups) {
      item.open = open || item.id === this.graph.root;
      item.layout = null;
    }
    if (open && !(await this.layOutInSlices(groups, change))) return;
    this.scene = buildScene(this.graph, this.levels);
    if (this.selected !== null && !this.scene.place.has(this.selected)) this.select(null);
    this.camera.fit(this.scene, { whole: !open });
    this.refresh();
    this.announce(open ? "Everything unfolded" : "Everything folded");
  }

  // Returns whether nothing was folded or unfolded in between.
  async layOutInSlices(groups, change) {
    let begun = performance.now();
    for (const [i, group] of groups.entries()) {
      layOut(this.graph, this.levels, group);
      if (performance.now() - begun < SLICE) continue;
      this.announce(`Unfolding: ${Math.round((100 * i) / groups.length)} %`);
      await new Promise((resume) => setTimeout(resume));
      if (this.change !== change) return false;
      begun = performance.now();
    }
    return true;
  }

  changed() {
    this.change = (this.change ?? 0) + 1;
    return this.change;
  }

  relaid(item) {
    this.changed();
    forget(this.graph, item);
    this.scene = buildScene(this.graph, this.levels);
  }

  // -- selecting ----------------------------------------------------------------------------------

  select(id) {
    this.selected = id;
    this.refresh();
    if (id !== null) this.announce(`${titleOf(this.graph.items[id])} ${this.graph.items[id].node?.name ?? ""}`);
  }

  // Unfolds what is around an item, selects it and goes there.
  reveal(id) {
    const closed = ancestors(this.graph, id).map((outer) => this.graph.items[outer]).filter((outer) => !outer.open);
    closed.forEach((outer) => { outer.open = true; forget(this.graph, outer); });
    if (closed.length) {
      this.changed();
      this.scene = buildScene(this.graph, this.levels);
    }
    this.select(id);
    const box = this.scene.place.get(id);
    if (box) this.camera.show(box, this.panel.hidden ? 0 : this.panel.offsetWidth + 20);
  }

  refresh() {
    fillPanel(this.panel, this);
    this.repaint();
  }

  announce(text) {
    document.getElementById("live").textContent = text;
  }

  escape() {
    const help = document.getElementById("help");
    if (!help.hidden) help.hidden = true;
    else this.select(null);
  }

  // -- the bar ------------------------------------------------------------------------------------

  fillBar() {
    const { graph } = this, total = graph.items[graph.root].total;
    const modes = modesOf(graph).map((mode) => element("option", { value: mode }, mode));
    const choose = element("select", { id: "colour", onchange: (event) => { this.colours.mode = event.target.value; this.recolour(); } }, ...modes);
    document.getElementById("bar").append(
      element("span", { className: "title", title: graph.title }, graph.title),
      element("span", { className: "count" }, `${total.toLocaleString("en")} nodes`),
      element("span", { className: "gap" }), searchBox(this),
      element("label", {}, element("span", { className: "wide" }, "colour by"), choose),
      this.button("Fold all", "Fold all (c)", () => this.openAll(false)),
      this.button("Unfold all", "Unfold all (e)", () => this.openAll(true)),
      this.button("About", "About the model", () => this.select(graph.root)),
      this.button("Theme", "Light or dark", () => { this.theme.toggle(); this.recolour(); }, "theme"),
      this.button("?", "Keys (?)", () => this.help()),
    );
    document.getElementById("zoom").append(
      this.button("−", "Zoom out (−)", () => this.camera.zoom(0.8)), this.button("+", "Zoom in (+)", () => this.camera.zoom(1.25)),
      this.button("Fit", "Show everything (0)", () => this.camera.fit(this.scene), "fit"),
    );
    const keys = KEYS.flatMap(([key, text]) => [element("dt", {}, key), element("dd", {}, text)]);
    document.getElementById("help").append(element("strong", {}, "Keys"), element("dl", {}, ...keys));
  }

  button(text, title, onclick, id = "") {
    return element("button", { title, onclick, id, "aria-label": title }, text);
  }

  help() {
    const help = document.getElementById("help");
    help.hidden = !help.hidden;
  }

  recolour() {
    document.documentElement.dataset.theme = this.theme.name;
    this.palette = readPalette();
    const entries = this.colours.legend(this.palette).map(([colour, name]) => {
      const sample = element("i");
      sample.style.background = colour;
      return element("span", {}, sample, name);
    });
    document.getElementById("legend").replaceChildren(...entries);
    this.refresh();
  }
}

globalThis.graphView = new View(JSON.parse(document.getElementById("data").textContent));
